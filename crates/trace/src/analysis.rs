//! All connections of a capture.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use crate::connection::{Connection, Ended, Settings};
use crate::findings::Grounds;
use crate::read::{Broken, Reading, Sink};
use crate::report::Report;
use crate::segment::{Endpoint, Host, Segment};
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
    /// Place of the newest connection between two ends, the lower one first.
    places: HashMap<(Endpoint, Endpoint), u32, foldhash::fast::RandomState>,
    last: Option<(Endpoint, Endpoint, u32)>,
    first_ns: Option<u64>,
    /// How many connections there were, and what those say that were let go.
    begun: usize,
    let_go: Grounds,
}

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
            begun: 0,
            let_go: Grounds::default(),
        }
    }

    /// What was found so far: as if the capture ended here, but it may go on.
    pub fn report(&self, file: &str, reading: &Reading, outcome: Result<(), &Broken>) -> Report {
        let finished = self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            connection.finish(&mut ());
            Cow::Owned(connection)
        });
        Report::build(file, reading, outcome, self.let_go.clone(), finished)
    }

    /// The connections so far, in the order of their first packets.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// What was told of every event.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// Lets connections go once there are more than `most`, until three quarters of it are left:
    /// first those that ended, then those silent longest. Totals and findings keep what they said;
    /// if one goes on it counts as another that began before the capture.
    pub fn let_go(&mut self, most: usize) {
        if self.connections.len() <= most {
            return;
        }
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        order.sort_by_key(|&place| {
            let connection = &self.connections[place];
            (connection.ended() == Ended::NotSeen, connection.last_ns)
        });
        order.truncate(self.connections.len() - most * 3 / 4);
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
        self.connections.shrink_to_fit();
        // Of several between the same ends the newest stands last.
        let places = self.connections.iter().enumerate();
        self.places = places
            .map(|(place, connection)| (key(connection.ends), place as u32))
            .collect();
        self.last = None;
    }

    /// The connections in the order of their first packets, and the watch; the capture is over.
    pub fn finish(mut self) -> (Vec<Connection>, W) {
        for connection in &mut self.connections {
            connection.finish(&mut self.watch);
        }
        (self.connections, self.watch)
    }

    #[inline]
    fn place(&mut self, segment: &Segment) -> usize {
        let (source, destination) = (segment.source, segment.destination);
        if let Some((a, b, place)) = self.last
            && ((a == source && b == destination) || (a == destination && b == source))
        {
            return place as usize;
        }
        let next = self.connections.len() as u32;
        let place = *self
            .places
            .entry(key([source, destination]))
            .or_insert(next);
        if place == next {
            self.push(segment);
        }
        self.last = Some((source, destination, place));
        place as usize
    }

    #[cold]
    fn another(&mut self, segment: &Segment) -> usize {
        let (source, destination) = (segment.source, segment.destination);
        let place = self.connections.len();
        self.places.insert(key([source, destination]), place as u32);
        self.last = Some((source, destination, place as u32));
        self.push(segment);
        place
    }

    fn push(&mut self, first: &Segment) {
        self.connections
            .push(Connection::new(first, self.begun, self.settings));
        self.begun += 1;
    }
}

/// The ends of a connection, the same for both directions.
#[inline]
fn key([a, b]: [Endpoint; 2]) -> (Endpoint, Endpoint) {
    if a < b { (a, b) } else { (b, a) }
}

impl<W: Watch> Sink for Analysis<W> {
    #[inline]
    fn segment(&mut self, segment: &Segment) {
        if let Some(filter) = &self.filter {
            let first_ns = *self.first_ns.get_or_insert(segment.at_ns.unwrap_or(0));
            if !filter.passes(segment, first_ns) {
                return;
            }
        }
        let mut place = self.place(segment);
        let mut from = self.connections[place].end_of(&segment.source);
        if self.connections[place].is_followed_by(segment, from) {
            self.connections[place].finish(&mut self.watch);
            place = self.another(segment);
            from = self.connections[place].end_of(&segment.source);
        }
        self.connections[place].on_segment(segment, from, &mut self.watch);
    }
}
