//! The steps of the cache protocol, without which some scenario reads stale data.

use crate::{Checker, Edit, Killer, Mutant};

/// What is played: it fails, and says so, where a read is stale.
const STALE: Killer = Killer::new(
    Checker::Test,
    "machine",
    ("coherence", "guests_find_what_they_rely_on"),
    " reads stale on ",
);

const CACHES: &str = "core/vm/src/caches.rs";
const FAULT: &str = "core/vm/src/fault.rs";
const GOING_OVER: &str = "core/vm/src/going_over.rs";
const MEMORY: &str = "core/vm/src/memory.rs";
const NOTIFIER: &str = "core/vm/src/notifier.rs";
const INVALIDATION: &str = "core/stage2/src/invalidation.rs";
const WRITTEN: &str = "core/stage2/src/written.rs";

/// Has those who are told of the frames that were written told by what takes a slice of marks, at any moment in that.
const EACH_IN_SLICE: [Edit; 3] = [
    (
        WRITTEN,
        "root.take_written_slice(left, slice, &meant, &mut told)",
        "root.take_written_slice(left, slice, &meant, &mut told, &mut each)",
    ),
    (
        WRITTEN,
        "told.each_run(&mut each);
            done
        });
    }

    /// Tells",
        "done
        });
    }

    /// Tells",
    ),
    (
        WRITTEN,
        "        meant: Meant<'_>,
        told: &mut Told,
    ) -> bool {",
        "        meant: Meant<'_>,
        told: &mut Told,
        mut each: &mut dyn FnMut(Pfn, u64),
    ) -> bool {",
    ),
];

/// A test of frames that the host says are clean.
const fn of_clean(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "vm", ("vm", test), "panicked")
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a frame is cleaned when it is mapped",
        edits: &[(CACHES, "self.cache.clean(first, count);", "")],
        killer: STALE,
    },
    Mutant {
        step: "a frame is cleaned when it takes another's place",
        edits: &[(
            CACHES,
            "            self.clean_to_map(pfn, 1);\n",
            "            let _ = pfn;\n",
        )],
        killer: STALE,
    },
    Mutant {
        step: "it is cleaned before its entry can be found",
        edits: &[
            (CACHES, "[Some(root), other]", "[None, other]"),
            (
                FAULT,
                "            let mapped = part.map()?;",
                "",
            ),
            (
                FAULT,
                "let part = grant.part(level, Permissions::all());
            if self",
                "let mapped = grant.part(level, Permissions::all()).map()?;
            let part = grant.part(level, Permissions::all());
            if self",
            ),
        ],
        killer: STALE,
    },
    Mutant {
        step: "what is mapped past the caches is read-only until it is written",
        edits: &[(FAULT, "if !write && (logs || marks) {", "if !write && logs {")],
        killer: STALE,
    },
    Mutant {
        step: "the first write is recorded",
        edits: &[(FAULT, "(level, leaf.written) = (Level::PAGE, true);", "level = Level::PAGE;")],
        killer: STALE,
    },
    Mutant {
        step: "what is flushed is read-only again",
        edits: &[(
            WRITTEN,
            "let permissions = leaf.permissions - Permissions::WRITE;",
            "let permissions = leaf.permissions;",
        )],
        killer: STALE,
    },
    Mutant {
        step: "TLBs forget the right to write",
        edits: &[(WRITTEN, "self.flush.add(at.gfn, at.level);", "")],
        killer: STALE,
    },
    Mutant {
        step: "they have forgotten it before the flush",
        edits: &[
            EACH_IN_SLICE[0],
            EACH_IN_SLICE[1],
            EACH_IN_SLICE[2],
            (
                WRITTEN,
                "changing.finish(take.flush, from..range.start);",
                "take.told.each_run(&mut each);
        changing.finish(take.flush, from..range.start);",
            ),
        ],
        killer: STALE,
    },
    Mutant {
        step: "marks are taken before the flush",
        edits: &[
            EACH_IN_SLICE[0],
            EACH_IN_SLICE[1],
            EACH_IN_SLICE[2],
            (
                WRITTEN,
                "TakeWritten { flush: Flush::new(), meant, told }",
                "TakeWritten { flush: Flush::new(), meant, told, each: &mut each }",
            ),
            (
                WRITTEN,
                "struct TakeWritten<'a> {",
                "struct TakeWritten<'a> { each: &'a mut dyn FnMut(Pfn, u64),",
            ),
            (
                WRITTEN,
                "let permissions = leaf.permissions - Permissions::WRITE;",
                "(self.each)(leaf.pfn, at.level.pages());
        let permissions = leaf.permissions - Permissions::WRITE;",
            ),
        ],
        killer: STALE,
    },
    Mutant {
        step: "who finds nothing to flush waits for who is flushing",
        edits: &[(CACHES, "tracking.flushes.synchronize_expedited();", "")],
        killer: STALE,
    },
    Mutant {
        step: "what was written is invalidated in the caches",
        edits: &[(
            CACHES,
            "self.cache.clean_invalidate(Pfn::new(first.get() + from), count);",
            "self.cache.clean(Pfn::new(first.get() + from), count);",
        )],
        killer: STALE,
    },
    Mutant {
        step: "what was written is flushed when caches are turned on",
        edits: &[(
            CACHES,
            "(false, CacheOp::On) => self.flush_written(Gfn::new(0)..Gfn::new(u64::MAX)),",
            "",
        )],
        killer: STALE,
    },
    Mutant {
        step: "turning caches off empties the root of those who are off",
        edits: &[(
            CACHES,
            "(true, CacheOp::Off | CacheOp::SetWay) =>",
            "(true, CacheOp::SetWay) =>",
        )],
        killer: STALE,
    },
    Mutant {
        step: "it is known that something is mapped in that root",
        edits: &[(CACHES, "tracking.mapped.store(true, Ordering::Relaxed);", "")],
        killer: STALE,
    },
    Mutant {
        step: "what was written there is flushed before",
        edits: &[(CACHES, "self.flush_written(all.clone());", "")],
        killer: STALE,
    },
    Mutant {
        step: "that root is zapped",
        edits: &[(
            CACHES,
            "self.stage2.zap_role(Role::MARKED, &invalidation, all, Tables::Free, self.slice);",
            "drop(all);",
        )],
        killer: STALE,
    },
    Mutant {
        step: "faults that cleaned before that are refused",
        edits: &[
            (
                CACHES,
                "let invalidation = self.stage2.begin_invalidation(&all);",
                "let invalidation = self.stage2.begin_invalidation(&(all.start..all.start));",
            ),
            (INVALIDATION, "assert!(self.is_announced(", "let _ = (self.is_announced("),
        ],
        killer: STALE,
    },
    Mutant {
        step: "what is mapped elsewhere is not taken for clean from then on",
        edits: &[(CACHES, "tracking.left_behind.store(true,", "tracking.left_behind.store(false,")],
        killer: STALE,
    },
    Mutant {
        step: "set and way is taken for maintenance",
        edits: &[(CACHES, "(true, CacheOp::Off | CacheOp::SetWay) =>", "(true, CacheOp::Off) =>")],
        killer: STALE,
    },
    Mutant {
        step: "it has caches watched for being turned off",
        edits: &[(CACHES, "CacheOp::SetWay => caches.watched = true,", "CacheOp::SetWay => {}")],
        killer: STALE,
    },
    Mutant {
        step: "what was written is flushed before the host reads it",
        edits: &[(NOTIFIER, "self.flush_written(gfns.clone());", "")],
        killer: STALE,
    },
    Mutant {
        step: "what was written is flushed before its slot is deleted",
        edits: &[(MEMORY, "self.flush_written(gfns.clone());", "")],
        killer: STALE,
    },
    Mutant {
        step: "what was written is flushed before all roots are replaced",
        edits: &[(GOING_OVER, "self.flush_few_written(self.slotted());", "")],
        killer: STALE,
    },
    Mutant {
        step: "what was written is flushed before the copy of another page takes its place",
        edits: &[(NOTIFIER, "self.flush_written(place.gfns.clone());", "")],
        killer: Killer::new(
            Checker::Test,
            "machine",
            (
                "coherence_random",
                "a_page_is_flushed_before_the_copy_of_another_takes_its_place_while_their_slot_moves_onto_itself",
            ),
            "of Which { vm: 1, slot: 0, page: 2 }",
        ),
    },
    Mutant {
        step: "what a host says is clean may be in instruction caches by other addresses",
        edits: &[(
            CACHES,
            "if is_clean && self.upkeep.capabilities.instructions != InstructionCaches::Virtual {",
            "if is_clean {",
        )],
        killer: of_clean("clean::what_is_clean_is_not_cleaned_unless_instructions_are_kept_by_virtual_addresses"),
    },
    Mutant {
        step: "what a host says is clean is mapped past the caches all the same",
        edits: &[(
            CACHES,
            "        let known = self.known_clean(grant.root(), section);
        if is_clean && self.upkeep.capabilities.instructions != InstructionCaches::Virtual {
            return Ok(false);
        }
",
            "        if is_clean && self.upkeep.capabilities.instructions != InstructionCaches::Virtual {
            return Ok(false);
        }
        let known = self.known_clean(grant.root(), section);
",
        )],
        killer: of_clean("clean::what_is_mapped_clean_past_the_caches_goes_when_another_vcpu_turns_its_own_off"),
    },
    Mutant {
        step: "a host hears that frames are clean when instructions are forgotten, too",
        edits: &[(
            CACHES,
            "return Ok(is_cleaned && instructions == InstructionCaches::Coherent);",
            "return Ok(is_cleaned);",
        )],
        killer: of_clean("clean::a_host_hears_of_what_has_become_clean_for_whatever_it_is_mapped_by"),
    },
    Mutant {
        step: "a host does not hear of frames that were left as they are",
        edits: &[(
            CACHES,
            "let is_cleaned = self.upkeep.coherent || cleaned == all;",
            "let is_cleaned = true;",
        )],
        killer: of_clean("clean::it_does_not_hear_of_what_the_vm_left_dirty_because_another_root_has_it"),
    },
];
