//! The steps and the invalidations that the core reports, as events of a trace.

use mayfly_platform::observe::Step;
use mayfly_platform::tlb::{self, Entries, Span, Vmid};

use crate::event::{Barrier, Event, Family, Reach, Scope};

/// The event of `step`. `family` is asked for the family of a format, by the format's name. `None` where an embedder sees
/// the step by itself, and where hardware sees nothing of it; and of [`Step::Filled`], which is several events
/// ([`fills`]).
pub fn event(step: &Step, family: impl FnOnce(&str) -> Family) -> Option<Event> {
    Some(match *step {
        Step::Entry { table, index, old, new } => {
            Event::Entry { table: table.get(), index: index as u32, old, new }
        }
        Step::Root { top, order, format, levels } => {
            Event::Root { top: top.get(), order, levels, family: family(format) }
        }
        Step::RootGone { top } => Event::RootGone { top: top.get() },
        Step::VmidTaken { vmid, generation } => Event::VmidTake { vmid: vmid.0, generation },
        Step::VmidGiven { vmid } => Event::VmidGive { vmid: vmid.0 },
        Step::VmidKept { vmid, generation } => Event::VmidKeep { vmid: vmid.0, generation },
        Step::Generation { generation } => Event::Generation { generation },
        Step::Barrier => Event::Barrier { kind: Barrier::Memory },
        _ => return None,
    })
}

/// The events of a table at frame `table` that was filled with `entries` entries, of which `entry` reads one: one event
/// for each run of entries in which each differs from the next by the same number.
pub fn fills(
    table: u64,
    entries: usize,
    entry: impl Fn(usize) -> u64,
    mut each: impl FnMut(Event),
) {
    let mut index = 0;
    while index < entries {
        let value = entry(index);
        let step = if index + 1 < entries { entry(index + 1).wrapping_sub(value) } else { 0 };
        let mut count = 1;
        while index + count < entries
            && entry(index + count).wrapping_sub(entry(index + count - 1)) == step
        {
            count += 1;
        }
        each(Event::Fill { table, index: index as u32, count: count as u32, value, step });
        index += count;
    }
}

/// The event of an invalidation with token `id` of what `scope` names, under `vmid`.
pub fn invalidation(id: u64, vmid: Vmid, scope: &tlb::Scope) -> Event {
    let scope = match scope {
        tlb::Scope::All => Scope::All,
        tlb::Scope::Range(Span { gfns, stride, entries }) => Scope::Range {
            first: gfns.start.get(),
            end: gfns.end.get(),
            stride: *stride,
            reach: match entries {
                Entries::Leaves => Reach::Leaves,
                Entries::LeavesOfAnySize => Reach::Sizes,
                Entries::Any => Reach::Any,
            },
        },
    };
    Event::Tlbi { id, vmid: vmid.0, scope }
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_runs_of_a_filled_table_have_each_entry_once(
            words in prop::collection::vec(prop_oneof![Just(0_u64), Just(8), Just(16), any::<u64>()], 0..64),
        ) {
            let (mut seen, mut runs) = (Vec::new(), 0);
            fills(3, words.len(), |index| words[index], |event| {
                let Event::Fill { table: 3, index, count, value, step } = event else { panic!("{event:?}") };
                assert_eq!(index as usize, seen.len());
                seen.extend((0..u64::from(count)).map(|n| value.wrapping_add(n.wrapping_mul(step))));
                runs += 1;
            });
            prop_assert_eq!(&seen, &words);
            let is_even = words.windows(3).all(|w| w[2].wrapping_sub(w[1]) == w[1].wrapping_sub(w[0]));
            prop_assert_eq!(runs == 1, is_even && !words.is_empty());
        }
    }
}
