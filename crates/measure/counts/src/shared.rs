//! A value of which records have many equal ones: machines, states of ports, topologies, knobs. Those that are read one after the
//! other share one copy.

use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that equal ones share where they are deserialized. A change makes it a copy of its own.
///
/// 20,000 records of one run took 54 kB each with a copy of every port's sysctls.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

/// Values that each thread keeps to share: those of some cells, because trials of all cells come in turn.
const KEPT: usize = 256;

thread_local! {
    /// Values of all types that were deserialized last, each different from the others.
    static LAST: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

impl<'de, T> Deserialize<'de> for Shared<T>
where
    T: Deserialize<'de> + PartialEq + Send + Sync + 'static,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        Ok(Shared::among_last(T::deserialize(deserializer)?))
    }
}

impl<T: PartialEq + Send + Sync + 'static> Shared<T> {
    /// The copy of an equal value that was shared lately, or this value, to be shared from now on.
    pub fn among_last(value: T) -> Shared<T> {
        LAST.with_borrow_mut(|last| {
            let known = last.iter().rev().find(|known| {
                let known = known.downcast_ref::<T>();
                known.is_some_and(|known| *known == value)
            });
            if let Some(Ok(known)) = known.map(|known| Arc::clone(known).downcast()) {
                return Shared(known);
            }
            let new = Arc::new(value);
            if last.len() >= KEPT {
                last.remove(0);
            }
            last.push(Arc::<T>::clone(&new));
            Shared(new)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_until_one_of_them_changes() {
        let read = |text: &str| serde_json::from_str::<Shared<Vec<u32>>>(text).unwrap();
        let (one, mut two) = (read("[1,2]"), read("[1,2]"));
        assert!(Arc::ptr_eq(&one.0, &two.0));
        two.push(3);
        assert_eq!((one.len(), two.len()), (2, 3));
        assert_eq!(serde_json::to_string(&two).unwrap(), "[1,2,3]");
    }

    #[test]
    fn a_value_that_many_others_followed_is_a_copy_of_its_own() {
        let read =
            |number: usize| serde_json::from_str::<Shared<usize>>(&number.to_string()).unwrap();
        let first = read(0);
        for number in 1..=KEPT {
            read(number);
        }
        let again = read(0);
        assert_eq!(first, again);
        assert!(!Arc::ptr_eq(&first.0, &again.0));
    }
}
