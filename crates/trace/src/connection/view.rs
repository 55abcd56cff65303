//! Packets that were captured at several interfaces of a host, or at both ends. Only one capture of
//! each packet is analysed, because times of two places cannot be combined.

use super::{Connection, sides};
use crate::segment::{PacketDirection, Segment};

/// Limit of successive packets that the chosen interface did not see. Beyond it the connection has
/// changed to another interface.
const ELSEWHERE_MOST: u16 = 256;

/// Number of the interface that saw a packet. Cooked captures of version 1 tell only the way, in or
/// out; a packet that comes in on one side of a router goes out on the other, so the way is turned
/// for the other direction.
#[inline]
fn view(segment: &Segment, from: usize) -> u64 {
    let direction = match (segment.direction, from) {
        (PacketDirection::Unknown, _) => return u64::from(segment.interface) << 2,
        (PacketDirection::In, 0) | (PacketDirection::Out, 1..) => 1,
        (PacketDirection::Out, _) | (PacketDirection::In, _) => 2,
    };
    u64::from(segment.interface) << 2 | direction
}

impl Connection {
    /// True if an interface other than the chosen one saw this packet.
    ///
    /// Each direction begins with the interface of its first packet, because routes may differ.
    /// Once a packet of one direction repeats what another interface saw, both directions use the
    /// interface of that first packet.
    #[inline]
    pub(super) fn is_second_view(
        &mut self,
        segment: &Segment,
        from: usize,
        nothing_new: bool,
    ) -> bool {
        let view = view(segment, from);
        let (here, _) = sides(&mut self.directions, from);
        let copies = &mut here.copies;
        if *copies.view.get_or_insert(view) == view {
            copies.elsewhere = 0;
            // Packets analysed before the change of interface are seen once more.
            copies.taken_elsewhere &= nothing_new;
            return copies.taken_elsewhere;
        }
        self.is_of_another(view, from, nothing_new)
    }

    #[cold]
    fn is_of_another(&mut self, view: u64, from: usize, nothing_new: bool) -> bool {
        let (here, there) = sides(&mut self.directions, from);
        if nothing_new {
            if !self.has_views {
                self.has_views = true;
                let changes = there
                    .copies
                    .view
                    .is_some_and(|view| Some(view) != here.copies.view);
                there.copies.taken_elsewhere = changes;
                there.copies.view = here.copies.view;
            }
            return true;
        }
        here.copies.elsewhere = here.copies.elsewhere.saturating_add(1);
        if !self.has_views || here.copies.elsewhere > ELSEWHERE_MOST {
            here.copies.view = Some(view);
            return false;
        }
        true
    }
}
