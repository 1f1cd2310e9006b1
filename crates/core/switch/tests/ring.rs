//! Whose frames are in a receiver's ring, beside a naive list of its buffers.

use std::collections::VecDeque;

use mayfly_switch::{Config, Limits, Place, Port, Ring, Senders, Switch};
use proptest::prelude::*;

fn ports(count: u8) -> Vec<Port> {
    let mut switch = Switch::new();
    let place = |number| Place::Card([2, 0, 0, 0, 0, number]);
    let config =
        |number| Config { place: place(number), network: 0, isolated: false, limits: Limits::NONE };
    (0..count).map(|number| switch.try_add(config(number), (), 0).unwrap()).collect()
}

/// A receiver, with the senders of the buffers that its driver has not offered again.
struct Receiver {
    ring: Ring,
    senders: Senders,
    taken_by: VecDeque<Port>,
}

impl Receiver {
    /// One whose driver has offered all of its buffers, as the first of which it counts `offered`.
    fn new(size: u16, offered: u16) -> Self {
        let ring = Ring { size, offered: offered.wrapping_add(size), taken: offered };
        let mut senders = Senders::new();
        let port = ports(1)[0];
        senders.took(port, Ring { taken: offered.wrapping_add(1 << 15), ..ring });
        senders.took(port, ring);
        Self { ring, senders, taken_by: VecDeque::new() }
    }

    fn free(&self) -> usize {
        usize::from(self.ring.size) - self.taken_by.len()
    }

    /// A frame comes that takes so many buffers. Returns whether it was admitted.
    fn receive(&mut self, from: Port, buffers: usize) -> bool {
        let is_admitted = self.senders.admits(from, self.ring);
        if is_admitted && buffers <= self.free() {
            self.ring.taken = self.ring.taken.wrapping_add(buffers as u16);
            self.taken_by.extend(std::iter::repeat_n(from, buffers));
            self.senders.took(from, self.ring);
        }
        is_admitted
    }

    /// The driver offers so many of the buffers again that were taken.
    fn offer(&mut self, buffers: usize) {
        let buffers = buffers.min(self.taken_by.len());
        self.taken_by.drain(..buffers);
        self.ring.offered = self.ring.offered.wrapping_add(buffers as u16);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Receive(usize, usize),
    Offer(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_usize, 1..50_usize).prop_map(|(from, buffers)| Step::Receive(from, buffers)),
        1 => (0..200_usize).prop_map(Step::Offer),
    ]
}

proptest! {
    #[test]
    fn a_sender_is_admitted_that_has_taken_no_more_than_twice_what_is_free(
        size in prop::sample::select(vec![1_u16, 2, 16, 64, 256]),
        offered in any::<u16>(),
        steps in prop::collection::vec(any_step(), 0..200),
    ) {
        let ports = ports(4);
        let mut receiver = Receiver::new(size, offered);
        for step in steps {
            match step {
                Step::Receive(from, buffers) => {
                    let held = receiver.taken_by.iter().filter(|&&by| by == ports[from]).count();
                    let may = held <= 2 * receiver.free();
                    prop_assert_eq!(receiver.receive(ports[from], buffers), may);
                }
                Step::Offer(buffers) => receiver.offer(buffers),
            }
        }
    }

    /// Whatever a ring says, and in whatever order: no panic, and a ring whose buffers are all free admits everybody.
    #[test]
    fn a_ring_that_makes_no_sense_is_survived(
        rings in prop::collection::vec((any::<u16>(), any::<u16>(), any::<u16>(), any::<bool>()), 0..50),
    ) {
        let port = ports(1)[0];
        let mut senders = Senders::new();
        for (size, offered, taken, takes) in rings {
            let ring = Ring { size, offered, taken };
            let _ = senders.admits(port, ring);
            if takes {
                senders.took(port, ring);
            }
            let free = Ring { size, offered: taken.wrapping_add(size), taken };
            prop_assert!(senders.admits(port, free));
        }
    }
}

#[test]
fn ports_that_send_without_an_end_leave_room_for_others() {
    for (count, most) in [(1_u8, 171), (2, 103), (4, 58)] {
        let ports = ports(count + 1);
        let mut receiver = Receiver::new(256, 0);
        for turn in 0..10_000_usize {
            receiver.receive(ports[turn % usize::from(count)], 1);
            if turn % 7 == 0 {
                receiver.offer(1);
            }
        }
        for port in &ports[..usize::from(count)] {
            let held = receiver.taken_by.iter().filter(|&by| by == port).count();
            assert!(held <= most, "{count} ports: one has {held} buffers");
        }
        assert!(receiver.receive(ports[usize::from(count)], 1), "{count} ports leave no room");
    }
}

#[test]
fn a_driver_that_begins_anew_has_a_ring_of_nobodys_frames() {
    let [flood, other] = ports(2)[..] else { unreachable!("two ports") };
    let mut receiver = Receiver::new(256, 5000);
    while receiver.receive(flood, 1) {}
    assert!(receiver.receive(other, 1));
    let ring = Ring { size: 256, offered: 60, taken: 0 };
    let mut senders = receiver.senders;
    senders.took(other, Ring { taken: 0, ..ring });
    assert!(senders.admits(flood, ring) && senders.admits(other, ring));
}
