//! What keeps devices on a PCI bus from memory and from each other's registers, whatever they and the device tree say.

use crate::{Checker, Killer, Mutant};

const BARS: &str = "metal/drivers/src/pci/bars.rs";
const BUS: &str = "metal/drivers/src/pci/bus.rs";
const CAPABILITIES: &str = "metal/drivers/src/pci/capabilities.rs";
const REGISTERS: &str = "metal/drivers/src/pci/registers.rs";
const TREE: &str = "metal/hypervisor/src/tree/pci.rs";
const STRAY: &str = "metal/hypervisor/src/stray.rs";

const fn on_bus(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "drivers", ("pci", test), "panicked")
}

const fn in_tree(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hypervisor", ("lib", test), "panicked")
}

const APART: Killer = on_bus("bars::bars_are_aligned_inside_of_a_window_and_never_overlap");

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a BAR is aligned by its size",
        edits: &[(
            BARS,
            "next.checked_next_multiple_of(bytes)?",
            "next.checked_next_multiple_of(PAGE)?",
        )],
        killer: APART,
    },
    Mutant {
        step: "a BAR ends in its window",
        edits: &[(BARS, "if end > (window.bus + window.bytes).min(limit) {", "if end > limit {")],
        killer: APART,
    },
    Mutant {
        step: "what a function that does not fit has taken is given to others",
        edits: &[
            (BARS, "let mut trial = *self;", "let trial = &mut *self;"),
            (BARS, "        *self = trial;\n", ""),
        ],
        killer: on_bus("bars::a_function_that_does_not_fit_takes_nothing"),
    },
    Mutant {
        step: "a function is off while nobody uses it",
        edits: &[(
            BUS,
            "self.command(function.at, Command::INTERRUPT_DISABLE);",
            "let _ = function;",
        )],
        killer: on_bus("bus::a_device_that_is_turned_off_has_no_registers_and_no_interrupt"),
    },
    Mutant {
        step: "a function sends no messages",
        edits: &[(BUS, "word & !enabled", "word | enabled & 0")],
        killer: on_bus("bus::a_device_gets_addresses_reaches_memory_and_sends_no_messages"),
    },
    Mutant {
        step: "registers are in the BAR that is named",
        edits: &[(
            CAPABILITIES,
            "&& end <= bar.bytes.min(u32::MAX.into())",
            "&& end <= u64::MAX.min(bar.bytes | u64::MAX)",
        )],
        killer: on_bus("bus::registers_that_are_not_in_a_bar_of_memory_are_refused"),
    },
    Mutant {
        step: "a queue is notified in the structure for that",
        edits: &[(
            REGISTERS,
            "(offset + 2 <= u64::from(bytes))",
            "(offset + 2 <= u64::from(bytes) << 32)",
        )],
        killer: on_bus("registers::a_queue_that_could_not_be_notified_has_no_descriptors"),
    },
    Mutant {
        step: "a bridge is nowhere where memory is",
        edits: &[(
            TREE,
            "let is_free = !taken.iter().any(meets);",
            "let is_free = taken.iter().any(meets) || true;",
        )],
        killer: in_tree(
            "tree::pci::tests::addresses_that_memory_or_a_device_has_are_not_those_of_a_bridge",
        ),
    },
    Mutant {
        step: "devices reach all memory where processors see it",
        edits: &[(
            TREE,
            "if !ranges::reach(&reached, memory) {",
            "if reached.len() > memory.len() {",
        )],
        killer: in_tree(
            "tree::pci::tests::devices_have_to_reach_all_memory_where_processors_see_it",
        ),
    },
    Mutant {
        step: "a line that is held is turned off",
        edits: &[(
            STRAY,
            "before < PATIENCE && now == PATIENCE",
            "before < PATIENCE && now > PATIENCE",
        )],
        killer: in_tree("stray::tests::a_line_is_held_when_nobody_asks_and_that_is_said_once"),
    },
];
