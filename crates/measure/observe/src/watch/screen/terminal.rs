//! The real terminal: taken over while [`Screen`] lives, and restored however it ends.

use std::cell::Cell;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::state::{State, ViewKind};
use crate::ticker::{Clock, Event, Ticker};
use crate::watch::driver::{Moment, View};
use crate::watch::rows::By;
use crate::watch::sample::Sample;

/// Draws a [`State`].
pub struct Screen {
    /// Never dropped: its `drop` prints failures to standard error, which panics if the terminal has closed.
    terminal: ManuallyDrop<DefaultTerminal>,
    state: State,
    on_screen: Rc<Cell<Option<By>>>,
}

impl Screen {
    /// Takes over the terminal. Stores in `on_screen` which rows are visible, so that only these are read.
    pub fn new(state: State, on_screen: &Rc<Cell<Option<By>>>) -> io::Result<Screen> {
        let terminal = ManuallyDrop::new(ratatui::try_init()?);
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
        // A terminal that has closed cannot be restored, and does not need it.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
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

/// Ticks, keys, signals and the closing of the terminal.
///
/// A separate thread reads the keys, because crossterm 0.29 never returns from reading a closed terminal, or
/// one that has sent half of an escape sequence.
pub struct Keys {
    clock: Clock,
    events: Receiver<io::Result<Event>>,
}

impl Keys {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(clock: Clock) -> io::Result<Keys> {
        let (sender, events) = sync_channel(KEYS_AHEAD);
        thread::Builder::new()
            .name("keys".to_string())
            .spawn(move || {
                loop {
                    let event = event::read();
                    let is_end = event.is_err();
                    let event = event.map(meaning).transpose();
                    if event.is_some_and(|event| sender.send(event).is_err()) || is_end {
                        return;
                    }
                }
            })?;
        Ok(Keys { clock, events })
    }
}

impl Ticker for Keys {
    fn wait(&mut self) -> io::Result<Event> {
        loop {
            if self.clock.is_ended(Duration::ZERO) || tcpcost_signals::is_terminal_closed() {
                return Ok(Event::End);
            }
            if let Some(tick) = self.clock.due() {
                return Ok(tick);
            }
            match self
                .events
                .recv_timeout(self.clock.remaining(SIGNALS_EVERY))
            {
                Ok(event) => return event,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.clock.wait(),
            }
        }
    }
}

/// Meaning of a terminal's event. `None` for events without one.
fn meaning(event: event::Event) -> Option<Event> {
    match event {
        event::Event::Resize(..) => Some(Event::Resize),
        event::Event::Key(key) if key.kind == KeyEventKind::Release => None,
        event::Event::Key(key)
            if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) =>
        {
            Some(Event::End)
        }
        event::Event::Key(key) => Some(Event::Key(key.code)),
        _ => None,
    }
}

/// Limit on keys that are read ahead.
const KEYS_AHEAD: usize = 64;
/// A signal or a closed terminal does not end a wait for keys, so they are checked this often.
const SIGNALS_EVERY: Duration = Duration::from_millis(250);
