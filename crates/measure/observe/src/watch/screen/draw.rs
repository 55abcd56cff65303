//! Draws the screen.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, SparklineBar, Table, TableState, Tabs};

use super::state::{State, ViewKind, overview as columns};

pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let mut about = state.about.lines();
    about.extend(state.sample.growth.warnings.iter().cloned());
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
    let width = usize::from(frame.area().width);
    let about: Vec<Line<'_>> = about
        .into_iter()
        .map(|line| Line::from(shortened(line, width)))
        .collect();
    frame.render_widget(Paragraph::new(about).dim(), head);
    match state.view {
        ViewKind::Overview => overview(frame, state, body),
        ViewKind::Rows(_) => rows(frame, state, body),
    }
    let paused = if state.is_paused { "PAUSED  " } else { "" };
    let help = format!("{paused}q quit  p pause  s sort  tab view  up/down select");
    frame.render_widget(Paragraph::new(help).reversed(), keys);
}

/// Draws a line for each figure: name, value, history.
fn overview(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let height = usize::from(area.height);
    // Scrolls so that the selected line is visible.
    let first = (state.selected + 1).saturating_sub(height);
    let texts = columns().map(|figure| state.sample.text(figure));
    let value_width = texts.map(|text| width_of(&text)).max().unwrap_or(0).max(10);
    let value_width = if area.width < NAME_WIDTH + value_width {
        0
    } else {
        value_width
    };
    let shown = columns().zip(&state.history).enumerate();
    for ((index, (figure, history)), y) in shown.skip(first).zip(area.y..area.bottom()) {
        let line = Rect {
            y,
            height: 1,
            ..area
        };
        let [name, value, chart] = Layout::horizontal([
            Constraint::Length(NAME_WIDTH),
            Constraint::Length(value_width),
            Constraint::Min(0),
        ])
        .areas(line);
        let style = match index == state.selected {
            true => Style::new().reversed(),
            false => Style::new(),
        };
        frame.render_widget(Paragraph::new(figure.heading()).style(style), name);
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

/// Chart of the newest `width` values, from 0 to the largest of them.
fn sparkline(history: &VecDeque<Option<f64>>, width: usize) -> Sparkline<'static> {
    let newest = || history.iter().skip(history.len().saturating_sub(width));
    let most = newest().flatten().copied().fold(0.0, f64::max);
    let bars: Vec<SparklineBar> = newest()
        .map(|value| {
            let height = value.map(|value| {
                // Height in thousandths; a terminal shows only eighths of a cell.
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
    let texts: Vec<Vec<String>> = state
        .view
        .columns()
        .iter()
        .map(|column| {
            let values = rows
                .iter()
                .map(|row| row.text(column, state.sample.growth.duration_ns));
            std::iter::once(column.heading().to_string())
                .chain(values)
                .collect()
        })
        .collect();
    let widths: Vec<u16> = texts
        .iter()
        .map(|texts| texts.iter().map(|text| width_of(text)).max().unwrap_or(0))
        .collect();
    let shown = columns_that_fit(&widths, state.sort, area.width.saturating_sub(LABEL_LEAST));
    let label_width = shown.iter().fold(area.width, |left, &column| {
        left.saturating_sub(widths[column] + GAP)
    });
    let heads = shown.iter().map(|&column| {
        let cell = right(texts[column][0].clone());
        if column == state.sort {
            cell.style(Style::new().reversed())
        } else {
            cell
        }
    });
    let header = Row::new(heads.chain([Cell::from(state.view.name())]));
    let lines = rows.iter().enumerate().map(|(line, row)| {
        let cells = shown
            .iter()
            .map(|&column| right(texts[column][line + 1].clone()));
        let label = shortened(row.label(), usize::from(label_width));
        Row::new(cells.chain([Cell::from(label)]))
    });
    let constraints = shown
        .iter()
        .map(|&column| Constraint::Length(widths[column]))
        .chain([Constraint::Length(label_width)]);
    let table = Table::new(lines, constraints)
        .column_spacing(GAP)
        .header(header)
        .row_highlight_style(Style::new().reversed());
    let mut selected = TableState::default().with_selected(state.selected);
    frame.render_stateful_widget(table, area, &mut selected);
}

/// Indices of the columns that fit into `room` characters, in their order. The column that sorts is taken
/// first, then the others from the left, in order of importance.
fn columns_that_fit(widths: &[u16], sort: usize, room: u16) -> Vec<usize> {
    let others = (0..widths.len()).filter(|&column| column != sort);
    let mut left = room;
    let mut shown = Vec::new();
    for column in std::iter::once(sort).chain(others) {
        match left.checked_sub(widths[column] + GAP) {
            Some(rest) => left = rest,
            None => break,
        }
        shown.push(column);
    }
    shown.sort_unstable();
    shown
}

/// Characters of a text on the screen.
fn width_of(text: &str) -> u16 {
    u16::try_from(text.chars().count()).unwrap_or(u16::MAX)
}

/// Shortens a text that is longer than `width` characters to its start and "…".
fn shortened(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Width of a figure's name in the overview.
const NAME_WIDTH: u16 = 9;
/// Space between two columns.
const GAP: u16 = 1;
/// Width that is reserved for the name of a row: an IPv4 address with its port.
const LABEL_LEAST: u16 = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::{about, counters_only, row, tracepoints};
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
            "{}/src/watch/screen/golden/{name}.txt",
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
    fn a_number_is_shown_whole_or_not_at_all() {
        let mut state = with_history(true);
        let rows = vec![row(1, "one", 1_234_567_890_123), row(2, "two", 60_000_000)];
        state.sample.rows = Some(rows.clone());
        let is_number = |word: &&str| word.parse::<f64>().is_ok();
        let of_row = |row: &crate::watch::rows::Row| {
            crate::watch::rows::CONNECTION_COLUMNS
                .iter()
                .map(|column| row.text(column, state.sample.growth.duration_ns))
                .collect::<Vec<_>>()
        };
        let of_rows: Vec<String> = rows.iter().flat_map(of_row).collect();
        let of_overview: Vec<String> = columns().map(|column| state.sample.text(column)).collect();
        for sort in 0..crate::watch::rows::CONNECTION_COLUMNS.len() {
            for width in 1..=200 {
                for (view, texts) in [
                    (ViewKind::Overview, &of_overview),
                    (ViewKind::ALL[1], &of_rows),
                ] {
                    (state.view, state.sort) = (view, sort);
                    let text = screen(&state, width, 12);
                    // Skips the lines that name the view and its rows.
                    for line in text.lines().skip(4) {
                        let label = |word: &&str| word.starts_with("10.0.0.1");
                        let words = line.split_whitespace().take_while(|word| !label(word));
                        for word in words.filter(is_number) {
                            let known = texts.iter().any(|text| text == word);
                            assert!(known, "{word} at {width} columns:\n{text}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn columns_leave_from_the_right_but_for_the_one_that_sorts() {
        let widths = [8, 7, 6];
        assert_eq!(columns_that_fit(&widths, 0, 24), [0, 1, 2]);
        assert_eq!(columns_that_fit(&widths, 0, 23), [0, 1]);
        assert_eq!(columns_that_fit(&widths, 2, 16), [0, 2]);
        assert_eq!(columns_that_fit(&widths, 2, 15), [2]);
        assert!(columns_that_fit(&widths, 2, 6).is_empty());
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
