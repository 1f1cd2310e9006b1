//! The steps of a virtqueue, of which the driver's are the guest's, of interrupt lines, and of cores that are turned on and
//! off.

use crate::{Checker, Killer, Mutant};

const QUEUE: &str = "core/devices/src/virtio/queue.rs";
const LINE: &str = "core/devices/src/line.rs";
const PSCI: &str = "core/devices/src/psci.rs";

const fn psci(test: &'static str) -> Killer {
    Killer::new(Checker::Loom, "devices", ("loom_psci", test), "Causality violation")
}

const TURNED_ON: Killer = psci("who_turns_a_core_on_again_finds_what_its_last_run_wrote");

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

const EDGE: Killer = Killer::new(
    Checker::Loom,
    "devices",
    ("loom_line", "what_is_told_while_the_driver_acknowledges_comes_with_an_edge"),
    "it was told by no edge",
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
            "        self.put_used(0, chain, memory)?;
        self.publish(",
            "        memory.store_release(self.device + 2, self.next_used.wrapping_add(1))?;
        self.put_used(0, chain, memory)?;
        self.publish(",
        )],
        killer: loom(
            "virtio::queue::model::a_driver_that_rests_is_told_of_what_it_has_not_found",
            "the index came first",
        ),
    },
    Mutant {
        step: "a core that is off has written what it wrote",
        edits: &[(
            PSCI,
            "core.state.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);",
            "core.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);",
        )],
        killer: TURNED_ON,
    },
    Mutant {
        step: "who turns it on finds that",
        edits: &[(
            PSCI,
            "            Ordering::Acquire,
            Ordering::Relaxed,
",
            "            Ordering::Relaxed,
            Ordering::Relaxed,
",
        )],
        killer: TURNED_ON,
    },
    Mutant {
        step: "so does who is told that it is off",
        edits: &[(
            PSCI,
            "let state = core.state.load(Ordering::Acquire);",
            "let state = core.state.load(Ordering::Relaxed);",
        )],
        killer: psci("who_is_told_that_a_core_is_off_finds_what_it_wrote"),
    },
    Mutant {
        step: "and who finds that a core is on, what came before",
        edits: &[(
            PSCI,
            "core.state.load(Ordering::Acquire) == ON",
            "core.state.load(Ordering::Relaxed) == ON",
        )],
        killer: psci("who_finds_that_a_core_is_on_finds_what_came_before_its_first_instruction"),
    },
    Mutant {
        step: "a line falls when its driver has acknowledged something",
        edits: &[(LINE, "    drive(false);\n    if level() {", "    if level() {")],
        killer: EDGE,
    },
    Mutant {
        step: "it rises again where there is more",
        edits: &[(
            LINE,
            "    drive(false);\n    if level() {",
            "    drive(false);\n    if false {",
        )],
        killer: EDGE,
    },
];
