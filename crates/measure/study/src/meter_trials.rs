//! Cost of the meters themselves: trials without the standing meters, and with each of them alone.

use tcpcost_counts::MeterName;

use crate::cell::{Cell, MeterTrial};
use crate::study::Study;

impl Study {
    /// Adds to each cell the trials that show the cost of its standing meters: one cell without
    /// them, and one with each alone if there are several. Captured trials cost nothing that counts.
    /// A second call does nothing.
    pub fn ask_meter_cost(&mut self) {
        self.measure.meter_cost = true;
        if self.cells.iter().any(|cell| cell.meter_trial.is_some()) {
            return;
        }
        let standing = self.standing_meters();
        let mut variants: Vec<Option<MeterName>> = vec![None];
        if standing.len() > 1 {
            variants.extend(standing.iter().map(|&meter| Some(meter)));
        }
        if standing.is_empty() {
            variants.clear();
        }
        let mut added = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.captured.is_none()) {
            added.extend(variants.iter().map(|&meter| Cell {
                name: match meter {
                    Some(meter) => format!("{}, {meter} alone", cell.name),
                    None => format!("{}, no standing meter", cell.name),
                },
                knobs: cell.knobs.clone(),
                meter_trial: Some(MeterTrial {
                    cell: cell.name.clone(),
                    meter,
                }),
                captured: None,
                program: None,
            }));
        }
        self.cells.extend(added);
    }

    /// Meters of this study that act all through the interval, in the order of the documentation.
    pub fn standing_meters(&self) -> Vec<MeterName> {
        let standing = MeterName::choices().filter(|meter| meter.is_standing());
        let asked = |meter: &MeterName| self.measure.meters.contains(meter);
        standing.filter(asked).collect()
    }

    /// Meters of a cell's trials.
    pub fn meters(&self, cell: &Cell) -> Vec<MeterName> {
        let wanted = |meter: &MeterName| match &cell.meter_trial {
            Some(trial) => !meter.is_standing() || trial.meter == Some(*meter),
            None => true,
        };
        let asked = self.measure.meters.iter().copied();
        asked.filter(wanted).collect()
    }
}
