//! The steps of a virtqueue, of which the driver's are the guest's.

use crate::{Checker, Killer, Mutant};

const QUEUE: &str = "core/devices/src/virtio/queue.rs";

const fn loom(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "devices", ("lib", test), says)
}

const TOLD: Killer = loom(
    "virtio::queue::model::a_driver_that_rests_is_told_of_what_it_has_not_found",
    "the driver waits for ever",
);

const NOTIFIED: Killer = loom(
    "virtio::queue::model::a_device_that_rests_is_notified_of_what_it_has_not_found",
    "the buffer is forgotten",
);

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a device that has used something passes a fence before it looks what the driver wants",
        edits: &[(
            QUEUE,
            "wish and its look at the index.
        fence(Ordering::SeqCst);
",
            "wish and its look at the index.
",
        )],
        killer: TOLD,
    },
    Mutant {
        step: "a device that is going to rest passes a fence before it looks once more",
        edits: &[(
            QUEUE,
            "index and its look at this.
        fence(Ordering::SeqCst);
",
            "index and its look at this.
",
        )],
        killer: NOTIFIED,
    },
    Mutant {
        step: "it does look once more",
        edits: &[(
            QUEUE,
            "Ok(memory.load_acquire(self.driver + 2)? != self.next_available)",
            "Ok(false)",
        )],
        killer: NOTIFIED,
    },
    Mutant {
        step: "what was used is written down before the index says so",
        edits: &[(
            QUEUE,
            "        let used = self.next_used;
        for (index",
            "        let used = self.next_used;
        memory.store_release(self.device + 2, used.wrapping_add(chains.len() as u16))?;
        for (index",
        )],
        killer: loom(
            "virtio::queue::model::a_driver_that_rests_is_told_of_what_it_has_not_found",
            "the index came first",
        ),
    },
];
