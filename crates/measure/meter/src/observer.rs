//! Meters that are read together, and the things that they do not count here.

use tcpcost_counts::{MeterName, Snapshot};

use crate::{Meter, MeterError, Needs, Owners, Scope};

/// Opened meters, and the things that they do not count here.
pub struct Observer<M: Meter + ?Sized = dyn Meter + Send> {
    meters: Vec<Box<M>>,
    /// Things that are not counted, with the reasons. The program that prints them adds what to do.
    pub missing: Vec<Missing>,
}

/// Something that an [`Observer`] does not count.
#[derive(Debug)]
pub enum Missing {
    /// A meter is unavailable.
    Meter(MeterError),
    /// `exact` counts, but without owners.
    Owners(MeterError),
    /// A line of [`Meter::misses`] or [`Meter::overflow`].
    Part(String),
}

impl Missing {
    /// Requirement that is missing, if it is known.
    pub fn needs(&self) -> Option<Needs> {
        match self {
            Missing::Meter(error) | Missing::Owners(error) => error.needs(),
            Missing::Part(_) => None,
        }
    }
}

impl<M: Meter + ?Sized> Observer<M> {
    /// Opens a meter on the thread that will read it. If `exact` cannot have the scope's owners here, opens it without owners.
    /// `None` if it is unavailable.
    pub fn open(
        &mut self,
        name: MeterName,
        scope: &Scope,
        mut open: impl FnMut(&Scope) -> Result<Box<M>, MeterError>,
    ) -> Option<&M> {
        let has_owners = name == MeterName::Exact && scope.owners != Owners::None;
        let opened = match open(scope) {
            Err(error) if has_owners => {
                let without = Scope {
                    owners: Owners::None,
                    ..scope.clone()
                };
                open(&without).inspect(|_| self.missing.push(Missing::Owners(error)))
            }
            opened => opened,
        };
        self.add(opened)
    }

    /// Adds a meter, or the reason why it is unavailable.
    pub fn add(&mut self, opened: Result<Box<M>, MeterError>) -> Option<&M> {
        match opened {
            Ok(meter) => {
                self.missing.extend(meter.misses().map(Missing::Part));
                self.meters.push(meter);
                self.meters.last().map(|meter| &**meter)
            }
            Err(error) => {
                self.missing.push(Missing::Meter(error));
                None
            }
        }
    }

    /// True if the meter is available.
    pub fn has(&self, name: MeterName) -> bool {
        self.meters.iter().any(|meter| meter.name() == name)
    }

    /// The meters in the order in which they were opened.
    pub fn meters(&mut self) -> impl DoubleEndedIterator<Item = &mut M> {
        self.meters.iter_mut().map(|meter| &mut **meter)
    }

    /// Notes how much found no room in the meters' tables since the last call.
    pub fn note_overflow(&mut self) {
        let lost = self.meters.iter_mut().filter_map(|meter| meter.overflow());
        self.missing.extend(lost.map(Missing::Part));
    }

    /// Reads the meters one after the other, as the iterator goes on.
    pub fn read(
        &mut self,
    ) -> impl DoubleEndedIterator<Item = (MeterName, Result<Snapshot, MeterError>)> {
        self.meters().map(|meter| (meter.name(), meter.snapshot()))
    }
}

impl<M: Meter + ?Sized> Default for Observer<M> {
    fn default() -> Self {
        Observer {
            meters: Vec::new(),
            missing: Vec::new(),
        }
    }
}

/// Drops the meters in reverse order. If two programs are attached to a tracepoint, and the first one is detached before the
/// second, the kernel waits for a grace period (some 20 ms).
impl<M: Meter + ?Sized> Drop for Observer<M> {
    fn drop(&mut self) {
        while self.meters.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tcpcost_counts::{CountOwner, Counts};

    use super::*;
    use crate::snapshot_of;

    /// A meter that notes its end.
    struct Noted(MeterName, Arc<Mutex<Vec<MeterName>>>);

    impl Meter for Noted {
        fn name(&self) -> MeterName {
            self.0
        }

        fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
            Ok(snapshot_of(self.0, CountOwner::Host, Counts::new()))
        }

        fn misses(&self) -> Option<String> {
            (self.0 == MeterName::Segments).then(|| "a part".to_string())
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    fn refused(meter: MeterName) -> MeterError {
        MeterError::Unavailable {
            meter,
            tried: "load".to_string(),
            source: None,
            needs: Some(Needs::Capabilities("CAP_BPF")),
        }
    }

    #[test]
    fn exact_opens_without_owners_where_it_cannot_have_them_and_the_last_meter_ends_first() {
        let ended = Arc::default();
        let mut observer = Observer::<dyn Meter + Send>::default();
        let scope = Scope {
            owners: Owners::Holders,
            ..Scope::default()
        };
        let mut tried = Vec::new();
        for name in [MeterName::Exact, MeterName::Perf, MeterName::Segments] {
            observer.open(name, &scope, |scope| {
                tried.push((name, scope.owners));
                match (name, scope.owners) {
                    (MeterName::Exact, Owners::None) | (MeterName::Segments, _) => {
                        Ok(Box::new(Noted(name, Arc::clone(&ended))))
                    }
                    _ => Err(refused(name)),
                }
            });
        }
        let expected = [
            (MeterName::Exact, Owners::Holders),
            (MeterName::Exact, Owners::None),
            (MeterName::Perf, Owners::Holders),
            (MeterName::Segments, Owners::Holders),
        ];
        assert_eq!(tried, expected);
        let [
            Missing::Owners(_),
            Missing::Meter(perf),
            Missing::Part(part),
        ] = &observer.missing[..]
        else {
            panic!("{:?}", observer.missing);
        };
        assert_eq!(
            (&perf.cause()[..], &part[..]),
            ("load (needs CAP_BPF)", "a part")
        );
        assert!(observer.has(MeterName::Exact) && !observer.has(MeterName::Perf));
        let read: Vec<MeterName> = observer.read().rev().map(|(name, _)| name).collect();
        assert_eq!(read, [MeterName::Segments, MeterName::Exact]);
        drop(observer);
        assert_eq!(*ended.lock().unwrap(), read);
    }
}
