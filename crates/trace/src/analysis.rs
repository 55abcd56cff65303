//! All connections of a capture.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::connection::{Connection, Settings};
use crate::read::Sink;
use crate::segment::{Endpoint, Host, Segment};
use crate::watch::Watch;

/// Which segments are analysed: those that meet all that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// One end has one of these addresses.
    pub addresses: Vec<IpAddr>,
    /// One end has one of these ports.
    pub ports: Vec<u16>,
    /// Captured this long after the first packet or later, ns.
    pub from_ns: Option<u64>,
    /// Captured before this time after the first packet, ns.
    pub until_ns: Option<u64>,
}

impl Filter {
    fn passes(&self, segment: &Segment, first_ns: u64) -> bool {
        let ends = [segment.source, segment.destination];
        let is_of = |end: Endpoint| matches!(end.host, Host::Address(address) if self.addresses.contains(&address));
        let after_ns = segment.at_ns.map_or(0, |at| at.saturating_sub(first_ns));
        (self.addresses.is_empty() || ends.into_iter().any(is_of))
            && (self.ports.is_empty() || ends.iter().any(|end| self.ports.contains(&end.port)))
            && self.from_ns.is_none_or(|from| after_ns >= from)
            && self.until_ns.is_none_or(|until| after_ns < until)
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
        }
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
        let key = if source < destination {
            (source, destination)
        } else {
            (destination, source)
        };
        let next = self.connections.len() as u32;
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.connections
                .push(Connection::new(segment, place as usize, self.settings));
        }
        self.last = Some((source, destination, place));
        place as usize
    }

    #[cold]
    fn another(&mut self, segment: &Segment) -> usize {
        let (source, destination) = (segment.source, segment.destination);
        let key = if source < destination {
            (source, destination)
        } else {
            (destination, source)
        };
        let place = self.connections.len();
        self.places.insert(key, place as u32);
        self.last = Some((source, destination, place as u32));
        self.connections
            .push(Connection::new(segment, place, self.settings));
        place
    }
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
