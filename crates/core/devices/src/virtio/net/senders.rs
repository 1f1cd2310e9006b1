//! Whose frames are in a receiver's ring, and who may put one more there.
//!
//! A ring is filled by whoever sends first. One that sends without an end has filled it by the time that others send, whose
//! frames are lost then: what a connection sends is lost the more often, the more somebody else sends to all. So a sender whose
//! frames have more than [twice](SHARE) the buffers that are free has its frame lost. One that sends alone has two thirds of a
//! ring. Two that send without an end have two fifths each, and so on: there is room for one more. (Choudhury and Hahne,
//! "Dynamic queue length thresholds for shared-memory packet switches", 1998.) A sender is judged before its frame is put into
//! the ring: one that takes several buffers may take all that are left.
//!
//! A driver gives buffers back in an order of its own. They are taken to come back in the order in which they went, which is
//! right on the whole: it gives back as many as it was given. Where it keeps those of one sender, others are charged for them. How
//! many it has is the most that were free at once: it need not fill its ring.

use crate::virtio::queue::MAX_SIZE;

/// How many buffers a sender's frames may have, for each that is free.
const SHARE: u16 = 2;

/// The most buffers of a ring.
const MOST: usize = MAX_SIZE as usize;

/// Whose frames are in a receiver's ring.
#[derive(Debug)]
pub(super) struct Senders {
    /// Who has taken a buffer, by the sender's number modulo 2^32; in the order in which buffers are taken.
    taken_by: [u32; MOST],
    /// How many buffers were taken, modulo 2^16.
    end: u16,
    /// The most buffers that were free at once.
    most: u16,
}

impl Senders {
    /// Nobody's, of a ring of which so many buffers were taken.
    pub(super) const fn new(taken: u16) -> Self {
        Self { taken_by: [0; MOST], end: taken, most: 0 }
    }

    /// Whether a frame of `from` may be put into the ring, whose driver has offered so many buffers, of which so many were
    /// taken, both modulo 2^16.
    pub(super) fn admits(&mut self, from: u64, offered: u16, taken: u16) -> bool {
        let free = offered.wrapping_sub(taken);
        if usize::from(free) > MOST {
            // Such a ring makes no sense, which is found by what takes a buffer.
            return true;
        }
        self.most = self.most.max(free);
        // What was offered since has taken the place of what came back, so that the driver has the last that were taken.
        // It is known who has taken them: all of that was since so many were free.
        let out = self.most - free;
        // Nobody has taken more than is not free.
        out <= SHARE * free || self.held(from, out) <= SHARE * free
    }

    /// Frames of `from` have been put into the ring, of which so many buffers have been taken now.
    pub(super) fn took(&mut self, from: u64, taken: u16) {
        let count = taken.wrapping_sub(self.end);
        if usize::from(count) > MOST {
            // Its driver has begun anew.
            *self = Self::new(taken);
            return;
        }
        for index in 0..count {
            self.taken_by[usize::from(self.end.wrapping_add(index)) % MOST] = from as u32;
        }
        self.end = taken;
    }

    /// How many of so many buffers, the last that were taken, `from` has taken.
    fn held(&self, from: u64, out: u16) -> u16 {
        let by = |back| self.taken_by[usize::from(self.end.wrapping_sub(back)) % MOST];
        (1..=out).map(|back| u16::from(by(back) == from as u32)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// A receiver, with the senders of the buffers that its driver has not offered again.
    struct Receiver {
        offered: u16,
        taken: u16,
        senders: Senders,
        taken_by: VecDeque<u64>,
    }

    impl Receiver {
        /// One whose driver has so many buffers and has offered them, as the first of which it counts `first`.
        fn new(buffers: u16, first: u16) -> Self {
            let (offered, senders) = (first.wrapping_add(buffers), Senders::new(first));
            Self { offered, taken: first, senders, taken_by: VecDeque::new() }
        }

        fn free(&self) -> usize {
            usize::from(self.offered.wrapping_sub(self.taken))
        }

        fn held(&self, from: u64) -> usize {
            self.taken_by.iter().filter(|&&by| by == from).count()
        }

        /// A frame comes that takes so many buffers, if it is admitted and there are as many. Returns whether it is admitted.
        fn receive(&mut self, from: u64, buffers: usize) -> bool {
            let is_admitted = self.senders.admits(from, self.offered, self.taken);
            if is_admitted && buffers <= self.free() {
                self.taken = self.taken.wrapping_add(buffers as u16);
                self.taken_by.extend(std::iter::repeat_n(from, buffers));
                self.senders.took(from, self.taken);
            }
            is_admitted
        }

        /// The driver offers so many of the buffers again that were taken.
        fn offer(&mut self, buffers: usize) {
            let buffers = buffers.min(self.taken_by.len());
            self.taken_by.drain(..buffers);
            self.offered = self.offered.wrapping_add(buffers as u16);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Receive(u64, usize),
        Offer(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..4_u64, 1..50_usize).prop_map(|(from, buffers)| Step::Receive(from, buffers)),
            1 => (0..200_usize).prop_map(Step::Offer),
        ]
    }

    proptest! {
        #[test]
        fn a_sender_is_admitted_that_has_taken_no_more_than_twice_what_is_free(
            buffers in prop::sample::select(std::vec![1_u16, 2, 16, 100, 256]),
            first in any::<u16>(),
            steps in prop::collection::vec(any_step(), 0..200),
        ) {
            let mut receiver = Receiver::new(buffers, first);
            prop_assert!(receiver.receive(0, 0));
            for step in steps {
                match step {
                    Step::Receive(from, buffers) => {
                        let may = receiver.held(from) <= 2 * receiver.free();
                        prop_assert_eq!(receiver.receive(from, buffers), may);
                    }
                    Step::Offer(buffers) => receiver.offer(buffers),
                }
            }
        }

        /// Whatever is said of a ring, and in whatever order: no panic, and one whose buffers are all free admits everybody.
        #[test]
        fn a_ring_that_makes_no_sense_is_survived(
            rings in prop::collection::vec((any::<u64>(), any::<u16>(), any::<u16>(), any::<bool>()), 0..50),
        ) {
            let mut senders = Senders::new(0);
            for (from, offered, taken, takes) in rings {
                let _ = senders.admits(from, offered, taken);
                if takes {
                    senders.took(from, taken);
                }
                prop_assert!(senders.admits(from, taken.wrapping_add(256), taken));
            }
        }
    }

    #[test]
    fn senders_without_an_end_leave_room_for_others() {
        for (count, most) in [(1, 171), (2, 103), (4, 58)] {
            let mut receiver = Receiver::new(256, 0);
            for turn in 0..10_000 {
                receiver.receive(turn % count, 1);
                if turn % 7 == 0 {
                    receiver.offer(1);
                }
            }
            let held: Vec<_> = (0..count).map(|from| receiver.held(from)).collect();
            assert!(held.iter().all(|&held| held <= most), "{held:?}");
            assert!(receiver.receive(count, 1), "{count} senders leave no room");
        }
    }

    #[test]
    fn a_sender_goes_on_beyond_the_numbers_of_a_ring() {
        let mut senders = Senders::new(0);
        for taken in 0..70_000_u32 {
            assert!(senders.admits(7, (taken + 200) as u16, taken as u16));
            senders.took(7, (taken + 1) as u16);
        }
    }

    #[test]
    fn nobody_is_charged_for_what_a_driver_had_before_it_began_anew() {
        let mut receiver = Receiver::new(256, 5000);
        while receiver.receive(0, 1) {}
        assert!(receiver.receive(1, 1));
        let mut senders = receiver.senders;
        senders.took(1, 0);
        assert!([0, 1].iter().all(|&from| senders.admits(from, 60, 0)));
    }
}
