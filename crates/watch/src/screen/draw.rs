//! What the screen looks like.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, SparklineBar, Table, TableState, Tabs};

use super::state::{State, ViewKind, overview as columns};
use crate::connections::ROW_COLUMNS;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let mut about = state.about.lines();
    about.extend(state.sample.warnings.iter().cloned());
    let head = u16::try_from(about.len()).unwrap_or(u16::MAX);
    let [tabs, head, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(head),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let titles = ViewKind::ALL.map(ViewKind::name);
    frame.render_widget(
        Tabs::new(titles)
            .select(state.view.index())
            .highlight_style(Style::new().reversed()),
        tabs,
    );
    let about: Vec<Line<'_>> = about.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(about).dim(), head);
    match state.view {
        ViewKind::Overview => overview(frame, state, body),
        ViewKind::Rows(_) => rows(frame, state, body),
    }
    let paused = if state.is_paused { "PAUSED  " } else { "" };
    let help = format!("{paused}q quit  p pause  s sort  tab view  up/down select");
    frame.render_widget(Paragraph::new(help).reversed(), keys);
}

/// A line per figure: name, value, history.
fn overview(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let height = usize::from(area.height);
    // The selected line is always seen.
    let first = (state.selected + 1).saturating_sub(height);
    let shown = columns().zip(&state.history).enumerate();
    for ((index, (figure, history)), y) in shown.skip(first).zip(area.y..area.bottom()) {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        let [name, value, chart] = Layout::horizontal([
            Constraint::Length(9),
            Constraint::Length(10),
            Constraint::Min(0),
        ])
        .areas(line);
        let style = match index == state.selected {
            true => Style::new().reversed(),
            false => Style::new(),
        };
        frame.render_widget(Paragraph::new(figure.head).style(style), name);
        let text = state.sample.text(figure);
        frame.render_widget(Paragraph::new(text).alignment(Alignment::Right), value);
        let chart = Rect {
            x: chart.x.saturating_add(1).min(chart.right()),
            width: chart.width.saturating_sub(1),
            ..chart
        };
        frame.render_widget(sparkline(history, usize::from(chart.width)), chart);
    }
}

/// The newest so many values, from 0 to the largest of them.
fn sparkline(history: &VecDeque<Option<f64>>, width: usize) -> Sparkline<'static> {
    let newest = || history.iter().skip(history.len().saturating_sub(width));
    let most = newest().flatten().copied().fold(0.0, f64::max);
    let bars: Vec<SparklineBar> = newest()
        .map(|value| {
            let height = value.map(|value| {
                // Of a thousand: eighths of a cell are what can be seen.
                if most > 0.0 {
                    (value / most * 1000.0) as u64
                } else {
                    0
                }
            });
            SparklineBar::from(height)
        })
        .collect();
    Sparkline::default()
        .data(bars)
        .max(1000)
        .absent_value_symbol(" ")
}

fn rows(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(rows) = state.rows() else {
        return frame.render_widget(Paragraph::new("nothing known yet"), area);
    };
    let right = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
    let heads = ROW_COLUMNS.iter().enumerate().map(|(index, figure)| {
        let cell = right(figure.head.to_string());
        match index == state.sort {
            true => cell.style(Style::new().reversed()),
            false => cell,
        }
    });
    let header = Row::new(heads.chain([Cell::from(state.view.name())]));
    let lines = rows.iter().map(|row| {
        let cells = ROW_COLUMNS
            .iter()
            .map(|figure| right(row.text(figure, state.sample.duration_ns)));
        Row::new(cells.chain([Cell::from(row.label())]))
    });
    let widths = ROW_COLUMNS.iter().map(|_| Constraint::Length(8));
    let table = Table::new(lines, widths.chain([Constraint::Min(20)]))
        .header(header)
        .row_highlight_style(Style::new().reversed());
    let mut selected = TableState::default().with_selected(state.selected);
    frame.render_stateful_widget(table, area, &mut selected);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{about, counters_only, row, tracepoints};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    /// The screen as text, without the spaces at the ends of lines.
    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            text += line.trim_end();
            text += "\n";
        }
        text
    }

    fn check(name: &str, found: &str) {
        let path = format!(
            "{}/src/screen/golden/{name}.txt",
            env!("CARGO_MANIFEST_DIR")
        );
        if std::env::var_os("TCPCOST_REWRITE").is_some() {
            std::fs::write(&path, found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, expected, "{path}: TCPCOST_REWRITE=1 writes it anew");
    }

    fn with_history(has_ebpf: bool) -> State {
        let mut state = State::new(&about(has_ebpf));
        for step in [0, 10, 20, 30, 20, 10] {
            let mut sample = match has_ebpf {
                true => tracepoints(step),
                false => counters_only(step),
            };
            sample.rows = Some(vec![row(1, "one", 1_000_000), row(2, "two", 60_000_000)]);
            state.take(&sample);
        }
        state
    }

    #[test]
    fn the_overview_has_a_line_and_a_history_for_each_figure() {
        check("overview", &screen(&with_history(true), 80, 20));
    }

    #[test]
    fn what_is_absent_is_a_dash_here_too() {
        check("counters", &screen(&with_history(false), 80, 20));
    }

    #[test]
    fn rows_are_sorted_and_a_pause_is_seen() {
        let mut state = with_history(true);
        let _ = state.key(KeyCode::Tab);
        let _ = state.key(KeyCode::Char('p'));
        check("connections", &screen(&state, 120, 8));
    }

    #[test]
    fn no_size_panics() {
        let mut state = with_history(true);
        for _ in ViewKind::ALL {
            for (width, height) in [(1, 1), (3, 9), (10, 2), (200, 60)] {
                screen(&state, width, height);
            }
            let _ = state.key(KeyCode::Tab);
            let _ = state.key(KeyCode::End);
        }
    }
}
