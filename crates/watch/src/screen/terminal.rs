//! The real terminal: taken over while this lives, given back however it ends.

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::state::{State, ViewKind};
use crate::connections::By;
use crate::driver::{Moment, View};
use crate::sample::Sample;
use crate::ticker::{Clock, Event, Ticker};

/// Draws a [`State`].
pub struct Screen {
    terminal: DefaultTerminal,
    state: State,
    on_screen: Rc<Cell<Option<By>>>,
}

impl Screen {
    /// Takes the terminal over. Says which rows are seen, to whoever looks for them.
    pub fn new(state: State, on_screen: &Rc<Cell<Option<By>>>) -> io::Result<Screen> {
        let terminal = ratatui::try_init()?;
        let mut screen = Screen {
            terminal,
            state,
            on_screen: Rc::clone(on_screen),
        };
        screen.draw()?;
        Ok(screen)
    }

    fn draw(&mut self) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, &self.state))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl View for Screen {
    fn show(&mut self, _: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>> {
        self.state.take(sample);
        self.draw()?;
        Ok(ControlFlow::Continue(()))
    }

    fn key(&mut self, key: KeyCode) -> io::Result<ControlFlow<()>> {
        let flow = self.state.key(key);
        self.on_screen.set(match self.state.view {
            ViewKind::Overview => None,
            ViewKind::Rows(by) => Some(by),
        });
        self.draw()?;
        Ok(flow)
    }

    fn resized(&mut self) -> io::Result<()> {
        self.draw()
    }
}

/// Ticks, keys and signals.
pub struct Keys(pub Clock);

impl Ticker for Keys {
    fn wait(&mut self) -> io::Result<Event> {
        loop {
            if self.0.is_ended(Duration::ZERO) {
                return Ok(Event::End);
            }
            if self.0.is_due() {
                return Ok(Event::Tick);
            }
            if !event::poll(self.0.remaining(SIGNALS_EVERY))? {
                continue;
            }
            match event::read()? {
                event::Event::Resize(..) => return Ok(Event::Resize),
                event::Event::Key(key) if key.kind == KeyEventKind::Release => {}
                event::Event::Key(key)
                    if key.code == KeyCode::Char('c')
                        && key.modifiers.contains(KeyModifiers::CONTROL) =>
                {
                    return Ok(Event::End);
                }
                event::Event::Key(key) => return Ok(Event::Key(key.code)),
                _ => {}
            }
        }
    }
}

/// A signal does not end a wait for keys: this long it may go unseen.
const SIGNALS_EVERY: Duration = Duration::from_millis(250);
