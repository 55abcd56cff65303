//! State of the screen, independent of drawing: view, order, selection, pause, history.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use ratatui::crossterm::event::KeyCode;

use crate::watch::causes::{ORDINARY, RARE};
use crate::watch::column::Column;
use crate::watch::rows::{By, Row, top};
use crate::watch::sample::{COLUMNS, Sample};
use crate::watch::sources::About;

#[derive(Debug)]
pub struct State {
    /// Explanation of the figures.
    pub about: About,
    pub view: ViewKind,
    /// Index of [`ViewKind::columns`] by which rows are sorted, largest first.
    pub sort: usize,
    /// Index of the selected line.
    pub selected: usize,
    /// True if new samples are ignored.
    pub is_paused: bool,
    /// The sample that is shown.
    pub sample: Sample,
    /// Values of each figure of [`overview`], oldest first.
    pub history: Vec<VecDeque<Option<f64>>>,
}

/// Kind of view. Tab goes to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    /// Figures of the whole host, with history.
    Overview,
    /// Rows of connections or owners.
    Rows(By),
}

impl ViewKind {
    /// All views, in the order of the tabs.
    pub const ALL: [ViewKind; 6] = [
        ViewKind::Overview,
        ViewKind::Rows(By::Connection),
        ViewKind::Rows(By::Process),
        ViewKind::Rows(By::Cgroup),
        ViewKind::Rows(By::Namespace),
        ViewKind::Rows(By::Port),
    ];

    /// Name on its tab.
    pub fn name(self) -> &'static str {
        match self {
            ViewKind::Overview => "overview",
            ViewKind::Rows(by) => by.name(),
        }
    }

    /// Columns of its rows.
    pub fn columns(self) -> &'static [Column] {
        match self {
            ViewKind::Overview => &[],
            ViewKind::Rows(by) => by.columns(),
        }
    }

    /// Index of its tab.
    pub fn index(self) -> usize {
        let place = ViewKind::ALL.iter().position(|&kind| kind == self);
        place.expect("every view is in the list")
    }
}

/// Columns of the overview: first those of lines, then the causes.
pub fn overview() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().chain(RARE).chain(ORDINARY)
}

impl State {
    /// State before the first sample.
    pub fn new(about: &About) -> State {
        State {
            about: about.clone(),
            view: ViewKind::Overview,
            sort: 0,
            selected: 0,
            is_paused: false,
            sample: Sample::default(),
            history: vec![VecDeque::new(); overview().count()],
        }
    }

    /// Adds a sample, or ignores it while paused.
    pub fn take(&mut self, sample: &Sample) {
        if self.is_paused {
            return;
        }
        for (column, history) in overview().zip(&mut self.history) {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(sample.value(column));
        }
        self.sample = sample.clone();
        self.select(self.selected);
    }

    /// Handles a key. `Break` ends the watch.
    pub fn key(&mut self, key: KeyCode) -> ControlFlow<()> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => {
                self.sort = (self.sort + 1) % self.view.columns().len().max(1);
            }
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(ViewKind::ALL.len() - 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn turn(&mut self, by: usize) {
        let next = (self.view.index() + by) % ViewKind::ALL.len();
        self.view = ViewKind::ALL[next];
        self.selected = 0;
        self.sort = match self.view {
            ViewKind::Rows(by) => by.first_sort(),
            ViewKind::Overview => 0,
        };
    }

    fn select(&mut self, line: usize) {
        let lines = match self.view {
            ViewKind::Overview => overview().count(),
            ViewKind::Rows(_) => self.rows().map_or(0, |rows| rows.len()),
        };
        self.selected = line.min(lines.saturating_sub(1));
    }

    /// Sorted rows of the view. `None` if there are none to show.
    pub fn rows(&self) -> Option<Vec<Row>> {
        let ViewKind::Rows(by) = self.view else {
            return None;
        };
        let mut rows = top(self.sample.rows.as_ref()?, by, ROWS_MAX);
        let value = |row: &Row| {
            let value = row.value(&by.columns()[self.sort], self.sample.growth.duration_ns);
            value.unwrap_or(f64::NEG_INFINITY)
        };
        rows.sort_by(|one, other| value(other).total_cmp(&value(one)));
        Some(rows)
    }
}

/// Number of samples that are kept: wider than most terminals.
const HISTORY: usize = 240;

/// Limit on the rows that keys can reach.
const ROWS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::{about, row, tracepoints};

    fn state() -> State {
        let mut state = State::new(&about(true));
        let mut sample = tracepoints(0);
        sample.rows = Some(vec![row(1, "one", 10), row(2, "two", 60)]);
        state.take(&sample);
        state
    }

    #[test]
    fn q_ends_it_and_other_keys_do_not() {
        let mut state = state();
        for key in [KeyCode::Char('x'), KeyCode::Enter, KeyCode::Up] {
            assert!(state.key(key).is_continue());
        }
        assert!(state.key(KeyCode::Char('q')).is_break());
    }

    #[test]
    fn p_leaves_samples_out_until_p() {
        let mut state = state();
        let _ = state.key(KeyCode::Char('p'));
        state.take(&tracepoints(10));
        assert_eq!(state.history[0].len(), 1);
        let _ = state.key(KeyCode::Char('p'));
        state.take(&tracepoints(10));
        assert_eq!(state.history[0], [Some(1e9), Some(2e9)]);
    }

    #[test]
    fn tab_goes_round_and_the_selection_stays_within_the_rows() {
        let mut state = state();
        let _ = state.key(KeyCode::End);
        assert_eq!(state.selected, overview().count() - 1);
        let _ = state.key(KeyCode::Tab);
        assert_eq!(
            (state.view, state.selected),
            (ViewKind::Rows(By::Connection), 0)
        );
        for _ in 0..5 {
            let _ = state.key(KeyCode::Down);
        }
        assert_eq!(state.selected, 1);
        state.take(&tracepoints(0));
        assert_eq!(state.selected, 0);
        let _ = state.key(KeyCode::BackTab);
        let _ = state.key(KeyCode::BackTab);
        assert_eq!(state.view, ViewKind::Rows(By::Port));
    }

    #[test]
    fn s_sorts_by_the_next_figure() {
        let mut state = state();
        let _ = state.key(KeyCode::Tab);
        let first = |state: &State| state.rows().unwrap()[0].process.clone().unwrap().pid;
        assert_eq!(first(&state), 2);
        let rows = state.sample.rows.as_mut().unwrap();
        rows[0]
            .counts
            .insert(tcpcost_counts::Quantity::ConnBytesReceived, 5);
        let _ = state.key(KeyCode::Char('s'));
        assert_eq!(first(&state), 1);
        for _ in 1..crate::watch::rows::CONNECTION_COLUMNS.len() {
            let _ = state.key(KeyCode::Char('s'));
        }
        assert_eq!(state.sort, 0);
    }

    #[test]
    fn history_forgets_the_oldest() {
        let mut state = state();
        (0..2 * HISTORY).for_each(|_| state.take(&tracepoints(0)));
        assert_eq!(state.history[0].len(), HISTORY);
    }
}
