//! All connections of a capture.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use crate::attempts::{Attempt, Attempts, Begun};
use crate::connection::{Connection, Ended, Settings};
use crate::evidence::Evidence;
use crate::read::{Broken, Reading, Sink};
use crate::report::Report;
use crate::segment::{Endpoint, Host, Segment, flag};
use crate::watch::Watch;

/// A point in time of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// So many ns after the first packet.
    AfterFirst(u64),
    /// So many ns since the epoch.
    At(u64),
}

impl Moment {
    /// Whether it is over when this segment passes. A segment without a stamp passes with the first.
    fn is_over(self, segment: &Segment, first_ns: u64) -> bool {
        let at_ns = segment.at_ns.unwrap_or(first_ns);
        match self {
            Moment::AfterFirst(ns) => at_ns.saturating_sub(first_ns) >= ns,
            Moment::At(ns) => at_ns >= ns,
        }
    }
}

/// Which segments are analysed: those that meet all that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// One end has one of these addresses.
    pub addresses: Vec<IpAddr>,
    /// One end has one of these ports.
    pub ports: Vec<u16>,
    /// Captured then or later.
    pub from: Option<Moment>,
    /// Captured before.
    pub until: Option<Moment>,
}

impl Filter {
    fn passes(&self, segment: &Segment, first_ns: u64) -> bool {
        let ends = [segment.source, segment.destination];
        let is_of = |end: Endpoint| matches!(end.host, Host::Address(address) if self.addresses.contains(&address));
        (self.addresses.is_empty() || ends.into_iter().any(is_of))
            && (self.ports.is_empty() || ends.iter().any(|end| self.ports.contains(&end.port)))
            && self.from.is_none_or(|from| from.is_over(segment, first_ns))
            && !self
                .until
                .is_some_and(|until| until.is_over(segment, first_ns))
    }
}

/// The analysis of the segments of a capture, which it takes as a [`Sink`]. Several captures that
/// follow each other may be read into one.
pub struct Analysis<W = ()> {
    settings: Settings,
    filter: Option<Filter>,
    watch: W,
    connections: Vec<Connection>,
    /// Place of the newest connection between two ends, in the order of [`key`].
    places: HashMap<(Endpoint, Endpoint), u32, foldhash::fast::RandomState>,
    /// Place of the connection whose packet passed last: the next is often its own.
    last: Option<usize>,
    first_ns: Option<u64>,
    /// Connections that are held at a time.
    most: usize,
    /// How many connections there were, and what those say that were let go.
    begun: usize,
    let_go: Evidence,
    /// Handshakes that nothing followed, and how many of them are listed.
    attempts: Attempts,
    listed: usize,
}

/// Handshakes that went nowhere are listed one by one up to here; all of them are counted.
const LISTED_MOST: usize = 1000;

/// Connections that are held at a time unless [`Analysis::holding`] says otherwise: some 1 GiB of them. Every
/// packet of a stranger may begin one.
const CONNECTIONS_MOST: usize = 200_000;

impl Analysis {
    /// An analysis of every segment.
    pub fn new(settings: Settings) -> Analysis {
        Analysis::watched(settings, Filter::default(), ())
    }
}

impl<W: Watch> Analysis<W> {
    /// An analysis of the segments that pass the filter, whose events `watch` is told.
    pub fn watched(settings: Settings, filter: Filter, watch: W) -> Analysis<W> {
        Analysis {
            settings,
            filter: (filter != Filter::default()).then_some(filter),
            watch,
            connections: Vec::new(),
            places: HashMap::default(),
            last: None,
            first_ns: None,
            most: CONNECTIONS_MOST,
            begun: 0,
            let_go: Evidence::default(),
            attempts: Attempts::default(),
            listed: 0,
        }
    }

    /// What was found so far: as if the capture ended here, but it may go on.
    pub fn report(&self, file: &str, reading: &Reading, outcome: Result<(), &Broken>) -> Report {
        let mut evidence = self.let_go.clone();
        let open = self.attempts.open();
        let (shown, others) =
            open.split_at(open.len().min(LISTED_MOST.saturating_sub(self.listed)));
        for attempt in others {
            evidence.add(&of_attempt(attempt, self.settings, &mut ()));
        }
        let attempts = shown
            .iter()
            .map(|attempt| of_attempt(attempt, self.settings, &mut ()));
        let mut all: Vec<Cow<'_, Connection>> = attempts.map(Cow::Owned).collect();
        all.extend(self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            connection.finish(&mut ());
            Cow::Owned(connection)
        }));
        all.sort_by_key(|connection| connection.number());
        Report::build(file, reading, outcome, evidence, all.into_iter())
    }

    /// The connections so far, in the order of their first packets.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// What was told of every event.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// Holds at most this many connections at a time. Beyond, it lets connections go until three quarters are
    /// left: first those that ended, then those silent longest. Totals and findings keep what they said; if one
    /// goes on it counts as another that began before the capture.
    pub fn holding(self, most: usize) -> Analysis<W> {
        Analysis { most, ..self }
    }

    #[cold]
    fn let_go(&mut self) {
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        order.sort_by_key(|&place| {
            let connection = &self.connections[place];
            (connection.ended() == Ended::NotSeen, connection.last_ns)
        });
        order.truncate(self.connections.len() - self.most * 3 / 4);
        let mut goes = vec![false; self.connections.len()];
        for place in order {
            goes[place] = true;
        }
        let mut goes = goes.into_iter();
        self.connections.retain_mut(|connection| {
            let goes = goes.next().unwrap_or(false);
            if goes {
                connection.finish(&mut self.watch);
                self.let_go.add(connection);
            }
            !goes
        });
        // Of several between the same ends the newest stands last; a handshake may be newer.
        let places = self.connections.iter().enumerate();
        self.places = places
            .map(|(place, connection)| (key(connection.ends), place as u32))
            .filter(|(ends, _)| !self.attempts.holds(ends))
            .collect();
        self.last = None;
    }

    /// The report, and the watch; the capture is over.
    pub fn into_report(
        self,
        file: &str,
        reading: &Reading,
        outcome: Result<(), &Broken>,
    ) -> (Report, W) {
        let (connections, evidence, watch) = self.into_parts();
        let connections = connections.iter().map(Cow::Borrowed);
        (
            Report::build(file, reading, outcome, evidence, connections),
            watch,
        )
    }

    /// The connections in the order of their first packets, and the watch; the capture is over. Of
    /// handshakes that went nowhere the first 1,000 are among them.
    pub fn finish(self) -> (Vec<Connection>, W) {
        let (connections, _, watch) = self.into_parts();
        (connections, watch)
    }

    fn into_parts(mut self) -> (Vec<Connection>, Evidence, W) {
        let attempts = std::mem::take(&mut self.attempts);
        for attempt in attempts.open() {
            self.settle(attempt);
        }
        for connection in &mut self.connections {
            connection.finish(&mut self.watch);
        }
        self.connections.sort_by_key(Connection::number);
        (self.connections, self.let_go, self.watch)
    }

    /// A handshake went nowhere.
    fn settle(&mut self, attempt: &Attempt) {
        let connection = of_attempt(attempt, self.settings, &mut self.watch);
        if self.listed < LISTED_MOST {
            self.listed += 1;
            self.connections.push(connection);
        } else {
            self.let_go.add(&connection);
        }
    }

    #[inline(never)]
    fn passes(&mut self, segment: &Segment) -> bool {
        let first_ns = *self.first_ns.get_or_insert(segment.at_ns.unwrap_or(0));
        let filter = self.filter.as_ref();
        filter.is_none_or(|filter| filter.passes(segment, first_ns))
    }

    /// The place of the connection that a segment belongs to, and which end sent it.
    #[inline(always)]
    fn find(&mut self, segment: &Segment) -> Option<(usize, usize)> {
        if let Some(place) = self.last
            && let Some(from) = self.connections[place].sender_of(segment)
        {
            return Some((place, from));
        }
        self.look_up(segment)
    }

    #[inline(never)]
    fn look_up(&mut self, segment: &Segment) -> Option<(usize, usize)> {
        let ends = key([segment.source, segment.destination]);
        let place = *self.places.get(&ends)? as usize;
        self.last = Some(place);
        Some((place, self.connections[place].end_of(&segment.source)))
    }

    /// A segment that belongs to no connection: of a handshake, or the first of one.
    #[cold]
    fn begin(&mut self, segment: &Segment) {
        let ends = key([segment.source, segment.destination]);
        let (begun, is_another) = self.attempts.on_segment(ends, segment, self.begun);
        self.begun += usize::from(is_another);
        let attempt = match begun {
            Begun::Held(over) => {
                if let Some(over) = over {
                    self.settle(&over);
                }
                return;
            }
            Begun::Connection(attempt) => attempt,
        };
        if self.connections.len() >= self.most {
            self.let_go();
        }
        let place = self.connections.len() as u32;
        self.places.insert(ends, place);
        self.last = Some(place as usize);
        let connection = begun_by(&attempt, self.settings, &mut self.watch);
        self.connections.push(connection);
    }

    /// A SYN of another connection between the same ends.
    #[cold]
    fn begin_again(&mut self, segment: &Segment, place: usize) {
        self.connections[place].finish(&mut self.watch);
        self.places
            .remove(&key([segment.source, segment.destination]));
        self.last = None;
        self.begin(segment);
    }
}

/// The connection that these packets begin.
fn begun_by(attempt: &Attempt, settings: Settings, watch: &mut impl Watch) -> Connection {
    let mut connection = Connection::new(&attempt.segments[0], attempt.place, settings);
    for segment in &attempt.segments {
        let from = connection.end_of(&segment.source);
        connection.on_segment(segment, from, watch);
    }
    connection
}

/// The connection that a handshake was, which went nowhere.
fn of_attempt(attempt: &Attempt, settings: Settings, watch: &mut impl Watch) -> Connection {
    let mut connection = begun_by(attempt, settings, watch);
    connection.finish(watch);
    connection
}

/// The ends of a connection in an order that is the same for both directions.
#[inline]
fn key([a, b]: [Endpoint; 2]) -> (Endpoint, Endpoint) {
    // Ports first: they mostly differ, and are compared in one step.
    if (a.port, a.host) < (b.port, b.host) {
        (a, b)
    } else {
        (b, a)
    }
}

impl<W: Watch> Sink for Analysis<W> {
    #[inline(always)]
    fn segment(&mut self, segment: &Segment) {
        if self.filter.is_some() && !self.passes(segment) {
            return;
        }
        let Some((place, from)) = self.find(segment) else {
            return self.begin(segment);
        };
        let connection = &mut self.connections[place];
        if segment.any(flag::SYN) && connection.is_followed_by(segment, from) {
            return self.begin_again(segment, place);
        }
        connection.on_segment(segment, from, &mut self.watch);
    }
}
