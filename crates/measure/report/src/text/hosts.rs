//! Hosts that a study names, next to each other, and hosts that met in rounds.

use super::Page;
use crate::fleet_prose;
use crate::host_table;
use crate::table::Table;

impl Page<'_> {
    /// Hosts that differ, if all met in rounds of pairs. With `details`, each host.
    pub(super) fn fleets(&self, details: bool) -> String {
        let mut out = String::new();
        for cell in &self.summary.cells {
            let Some(fleet) = &cell.fleet else { continue };
            out += &self.heading(&fleet_prose::title(&cell.name));
            out += &self.lines(fleet_prose::lines(
                fleet,
                self.summary.study.measure.min_effect,
            ));
            if details {
                let columns = host_table::fleet_columns(fleet);
                let mut table = Table::new(&[&["host"], &columns[..]].concat());
                for row in host_table::fleet_rows(fleet) {
                    table.row(row);
                }
                self.table(&table, &mut out);
            }
        }
        out
    }

    /// Hosts of a study that names them, by the meter of their CPU time, and the time between their starts.
    pub(super) fn hosts(&self) -> String {
        let mut table = Table::new(&host_table::COLUMNS);
        for cell in &self.summary.cells {
            for rows in cell.host_rows.chunk_by(|a, b| a.tier == b.tier) {
                table.heading(&format!("{}: {}", cell.name, rows[0].tier.label()));
                for row in rows {
                    let mut shown = host_table::row(row).to_vec();
                    shown[0].insert_str(0, "  ");
                    table.row(shown);
                }
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out = self.heading(host_table::TITLE);
        self.table(&table, &mut out);
        let skews = self.summary.cells.iter().filter_map(host_table::skew);
        out + &self.lines(skews.collect())
    }
}
