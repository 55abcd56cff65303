//! All connections of a capture.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use crate::attempts::{Attempt, AttemptResult, Attempts};
use crate::connection::{Connection, ConnectionEnd, Ports, Settings};
use crate::evidence::Evidence;
use crate::read::{ReadFailure, Reading, Sink};
use crate::report::Report;
use crate::segment::{Endpoint, Host, Segment, flag};
use crate::watch::Watch;

/// Point in time of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureTime {
    /// Time after the first packet, ns.
    AfterFirst(u64),
    /// Time since the epoch, ns.
    At(u64),
}

impl CaptureTime {
    /// True if the moment is not after this segment's time. A segment without a timestamp has the
    /// time of the first.
    fn is_over(self, segment: &Segment, first_ns: u64) -> bool {
        let at_ns = segment.at_ns.unwrap_or(first_ns);
        match self {
            CaptureTime::AfterFirst(ns) => at_ns.saturating_sub(first_ns) >= ns,
            CaptureTime::At(ns) => at_ns >= ns,
        }
    }
}

/// Choice of the segments that are analysed. A segment must meet all conditions that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Addresses, one of which one end must have. Empty: any.
    pub addresses: Vec<IpAddr>,
    /// Ports, one of which one end must have. Empty: any.
    pub ports: Vec<u16>,
    /// Start: segments captured then or later pass. `None`: the start of the capture.
    pub from: Option<CaptureTime>,
    /// End: segments captured before pass. `None`: the end of the capture.
    pub until: Option<CaptureTime>,
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

/// Analysis of the segments of a capture, which it receives as a [`Sink`]. Several captures of
/// successive times may be read into one analysis.
pub struct Analysis<W = ()> {
    settings: Settings,
    filter: Option<Filter>,
    watch: W,
    connections: Vec<Connection>,
    /// Index of the newest connection between two ends, which are in the order of [`key`].
    places: HashMap<(Endpoint, Endpoint), u32, foldhash::fast::RandomState>,
    /// Index of the connection of the last packet: the next packet often belongs to it, too.
    last: Option<usize>,
    first_ns: Option<u64>,
    /// Time of the latest packet: the end of the capture so far. 0 without times.
    now_ns: u64,
    /// Number of the last packet, and of all packets of the files before this one.
    last_frame: u64,
    frames_before: u64,
    /// Limit of connections held at a time.
    most: usize,
    /// Number of connections so far, and the evidence of those that were released.
    begun: usize,
    let_go: Evidence,
    /// Handshakes that nothing followed so far, and how many such handshakes are in `connections`.
    attempts: Attempts,
    listed: usize,
    ports: Ports,
}

/// Limit of failed handshakes that are listed singly. All of them are counted.
const LISTED_MOST: usize = 1000;

/// Default limit of connections held at a time ([`Analysis::holding`] sets another): about 1 GiB of
/// them. A limit is needed because every packet from outside may begin a connection.
const CONNECTIONS_MOST: usize = 200_000;

impl Analysis {
    /// Creates an analysis of every segment.
    pub fn new(settings: Settings) -> Analysis {
        Analysis::watched(settings, Filter::default(), ())
    }
}

impl<W: Watch> Analysis<W> {
    /// Creates an analysis of the segments that pass `filter`; `watch` receives its events.
    pub fn watched(settings: Settings, filter: Filter, watch: W) -> Analysis<W> {
        Analysis {
            settings,
            filter: (filter != Filter::default()).then_some(filter),
            watch,
            connections: Vec::new(),
            places: HashMap::default(),
            last: None,
            first_ns: None,
            now_ns: 0,
            last_frame: 0,
            frames_before: 0,
            most: CONNECTIONS_MOST,
            begun: 0,
            let_go: Evidence::default(),
            attempts: Attempts::default(),
            listed: 0,
            ports: Ports::default(),
        }
    }

    /// Reports the findings so far, as if the capture ended here. The analysis can go on.
    pub fn report(
        &self,
        file: &str,
        reading: &Reading,
        outcome: Result<(), &ReadFailure>,
    ) -> Report {
        let mut evidence = self.let_go.clone();
        evidence.handshakes.not_analysed = self.attempts.not_analysed();
        let mut all: Vec<Cow<'_, Connection>> = Vec::new();
        let listed_most = LISTED_MOST.saturating_sub(self.listed);
        for attempt in self.attempts.open() {
            let failed = of_attempt(&attempt, self.settings, self.now_ns, &mut ());
            if all.len() < listed_most {
                all.push(Cow::Owned(failed));
            } else {
                evidence.add(&failed);
            }
        }
        all.extend(self.connections.iter().map(|connection| {
            let mut connection = connection.clone();
            connection.finish(self.now_ns, &mut ());
            Cow::Owned(connection)
        }));
        all.sort_by_key(|connection| connection.number());
        Report::build(file, reading, outcome, evidence, all.into_iter())
    }

    /// Connections so far, in the order of their first packets; without handshakes that nothing
    /// followed.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Receiver of the events.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// Sets the limit of connections held at a time. Beyond it, connections are released until
    /// three quarters of the limit are left: ended connections first, then those silent longest.
    /// Totals and findings keep what released connections contributed. A released connection that
    /// goes on counts as another one that began before the capture.
    pub fn holding(self, most: usize) -> Analysis<W> {
        Analysis { most, ..self }
    }

    #[cold]
    fn let_go(&mut self) {
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        order.sort_by_key(|&place| {
            let connection = &self.connections[place];
            (
                connection.ended() == ConnectionEnd::NotSeen,
                connection.last_ns,
            )
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
                connection.finish(self.now_ns, &mut self.watch);
                self.let_go.add(connection);
            }
            !goes
        });
        // Between the same ends the newest connection is last and wins. An open handshake may be
        // newer still, so its ends get no entry.
        let places = self.connections.iter().enumerate();
        self.places = places
            .map(|(place, connection)| (key(connection.ends), place as u32))
            .filter(|(ends, _)| !self.attempts.holds(ends))
            .collect();
        self.last = None;
    }

    /// Ends the capture and returns the report and the watch.
    pub fn into_report(
        self,
        file: &str,
        reading: &Reading,
        outcome: Result<(), &ReadFailure>,
    ) -> (Report, W) {
        let (connections, evidence, watch) = self.into_parts();
        let connections = connections.iter().map(Cow::Borrowed);
        (
            Report::build(file, reading, outcome, evidence, connections),
            watch,
        )
    }

    /// Ends the capture and returns the connections in the order of their first packets, and the
    /// watch. The first 1,000 failed handshakes are among the connections.
    pub fn finish(self) -> (Vec<Connection>, W) {
        let (connections, _, watch) = self.into_parts();
        (connections, watch)
    }

    fn into_parts(mut self) -> (Vec<Connection>, Evidence, W) {
        let attempts = std::mem::take(&mut self.attempts);
        self.let_go.handshakes.not_analysed = attempts.not_analysed();
        for attempt in attempts.open() {
            self.settle(&attempt, self.now_ns);
        }
        for connection in &mut self.connections {
            connection.finish(self.now_ns, &mut self.watch);
        }
        self.connections.sort_by_key(Connection::number);
        (self.connections, self.let_go, self.watch)
    }

    /// Turns a failed handshake into a connection; beyond [`LISTED_MOST`] only its evidence is
    /// kept.
    fn settle(&mut self, attempt: &Attempt, until_ns: u64) {
        let connection = of_attempt(attempt, self.settings, until_ns, &mut self.watch);
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

    /// Index of the connection of a segment, and the end that sent it (0 or 1).
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

    /// Handles a segment of no connection: part of a handshake, or the first packet of a
    /// connection.
    #[cold]
    fn begin(&mut self, segment: &Segment) {
        let ends = key([segment.source, segment.destination]);
        let (begun, is_another) = self.attempts.on_segment(ends, segment, self.begun);
        if is_another {
            self.begun += 1;
            self.ports.add(segment);
        }
        let attempt = match begun {
            AttemptResult::Held(over) => {
                if let Some(over) = over {
                    self.settle(&over, 0);
                }
                return;
            }
            AttemptResult::Connection(attempt) => attempt,
        };
        if self.connections.len() >= self.most {
            self.let_go();
        }
        let place = self.connections.len() as u32;
        self.places.insert(ends, place);
        self.last = Some(place as usize);
        let connection = begun_by(&attempt, self.settings, &self.ports, &mut self.watch);
        self.connections.push(connection);
    }

    /// Handles a SYN of another connection between the same ends.
    #[cold]
    fn begin_again(&mut self, segment: &Segment, place: usize) {
        // Its ends began anew, so nobody waits for it any longer.
        self.connections[place].finish(0, &mut self.watch);
        self.places
            .remove(&key([segment.source, segment.destination]));
        self.last = None;
        self.begin(segment);
    }
}

/// Creates the connection that the packets of `attempt` begin.
fn begun_by(
    attempt: &Attempt,
    settings: Settings,
    ports: &Ports,
    watch: &mut impl Watch,
) -> Connection {
    let mut connection = Connection::new(&attempt.segments[0], attempt.place, settings, ports);
    for segment in &attempt.segments {
        let from = connection.end_of(&segment.source);
        connection.on_segment(segment, from, watch);
    }
    connection
}

/// Creates the connection of a handshake that nothing followed until `until_ns` (0: until its ports began another), already
/// finished.
fn of_attempt(
    attempt: &Attempt,
    settings: Settings,
    until_ns: u64,
    watch: &mut impl Watch,
) -> Connection {
    let mut connection = begun_by(attempt, settings, &Ports::default(), watch);
    connection.finish(until_ns, watch);
    connection
}

/// Sorts the ends of a connection, so that both directions have the same key.
#[inline]
fn key([a, b]: [Endpoint; 2]) -> (Endpoint, Endpoint) {
    // Ports first: they usually differ, and comparing them takes one step.
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
        if segment.frame <= self.last_frame || self.frames_before > 0 {
            return self.of_later_file(segment);
        }
        self.last_frame = segment.frame;
        self.take(segment);
    }
}

impl<W: Watch> Analysis<W> {
    /// Takes a segment of a file that is read after another: its packets are numbered on.
    #[cold]
    fn of_later_file(&mut self, segment: &Segment) {
        if segment.frame <= self.last_frame {
            self.frames_before += self.last_frame;
        }
        self.last_frame = segment.frame;
        self.take(&Segment {
            frame: self.frames_before + segment.frame,
            ..*segment
        });
    }

    #[inline(always)]
    fn take(&mut self, segment: &Segment) {
        self.now_ns = self.now_ns.max(segment.at_ns.unwrap_or(0));
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
