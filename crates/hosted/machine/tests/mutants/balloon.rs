//! What has a balloon give exactly the pages that its driver gives back, and before the driver hears of it.

use crate::{Checker, Killer, Mutant};

const BALLOON: &str = "core/devices/src/virtio/balloon.rs";

const fn virtio(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "devices", ("virtio", test), "panicked")
}

const MODEL: &str = "balloon::exactly_the_pages_of_a_chain_are_given_whatever_their_order";
const DIRECTION: &str =
    "balloon::a_chain_of_the_wrong_direction_breaks_the_balloon_until_its_reset";
const POISON: &str =
    "balloon::pages_that_are_to_read_as_something_else_than_zeroes_stay_as_they_are";
const PIECES: &str = "balloon::gigabytes_of_numbers_are_taken_a_piece_at_a_time";
const BEFORE: &str = "balloon::pages_are_given_before_their_driver_hears_of_it";

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a chain is the driver's again when all of its numbers were taken",
        edits: &[(BALLOON, "end.is_none_or(|end| end >= whole_numbers(chain))", "true")],
        killer: virtio(MODEL),
    },
    Mutant {
        step: "pages are given before their chain is given back",
        edits: &[(
            BALLOON,
            "INFLATE => self.give_inflated(&chain, memory, free)?,",
            "INFLATE => {
                let mut later = Ranges::new();
                let mut keep = |ranges: &[Range<u64>], _| ranges.iter().cloned().for_each(|range| later.push(range));
                if self.give_inflated(&chain, memory, &mut keep)? {
                    self.give_back_chain(queue, Used { head, written: 0 }, memory)?;
                }
                later.give(Contents::Any, free);
                false
            }",
        )],
        killer: virtio(BEFORE),
    },
    Mutant {
        step: "no more numbers are taken than there is room for",
        edits: &[(
            BALLOON,
            "if !self.has_room() {\n                    return",
            "if false {\n                    return",
        )],
        killer: virtio(PIECES),
    },
    Mutant {
        step: "what was taken of a chain is forgotten with its queue",
        edits: &[(BALLOON, "if queue == INFLATE {", "if queue == DEFLATE {")],
        killer: virtio(PIECES),
    },
    Mutant {
        step: "numbers are what a device reads",
        edits: &[(BALLOON, "if chain.writable() != 0 {", "if false {")],
        killer: virtio(DIRECTION),
    },
    Mutant {
        step: "pages that are reported are what a device writes",
        edits: &[(BALLOON, "if chain.readable() != 0 {", "if false {")],
        killer: virtio(DIRECTION),
    },
    Mutant {
        step: "pages that are filled with anything but zeroes stay",
        edits: &[(BALLOON, "if !is_poisoned || poison == 0 {", "{")],
        killer: virtio(POISON),
    },
    Mutant {
        step: "pages that are filled with zeroes go on reading so",
        edits: &[(BALLOON, "if is_poisoned { Contents::Zeroes }", "if false { Contents::Zeroes }")],
        killer: virtio(POISON),
    },
    Mutant {
        step: "what free pages are filled with changes no more while the driver works",
        edits: &[(BALLOON, "0xc if !works =>", "0xc =>")],
        killer: virtio(POISON),
    },
    Mutant {
        step: "a page of which a part is reported stays",
        edits: &[(BALLOON, "address.div_ceil(PAGE_BYTES)..", "address / PAGE_BYTES..")],
        killer: virtio("balloon::of_what_is_reported_the_whole_pages_are_given_wherever_they_are"),
    },
    Mutant {
        step: "pages are given in order",
        edits: &[(BALLOON, "ranges.sort_unstable_by_key(|range| range.start);", "")],
        killer: virtio(
            "balloon::a_page_that_is_named_twice_is_given_once_and_order_does_not_matter",
        ),
    },
    Mutant {
        step: "a page that is named twice is given once",
        edits: &[(BALLOON, "if range.start <= ranges[last].end {", "if false {")],
        killer: virtio(
            "balloon::a_page_that_is_named_twice_is_given_once_and_order_does_not_matter",
        ),
    },
    Mutant {
        step: "a driver that does not work is told nothing",
        edits: &[(BALLOON, "!= pages && self.works() {", "!= pages {")],
        killer: virtio("balloon::its_driver_is_told_what_it_asks_for_and_says_what_it_has"),
    },
];
