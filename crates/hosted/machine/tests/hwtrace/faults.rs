//! Faults in what the core, or an embedder, does to entries, TLBs and VMIDs.

use mayfly_hwtrace::{Event, Rule, Scope};

use crate::life::Edit;

/// A fault, as it is planted where a life has a place for it, and the rule that it breaks.
pub(crate) type Fault = (&'static str, fn(&mut Edit) -> Option<()>, Rule);

pub(crate) const FAULTS: [Fault; 20] = [
    (
        "a block becomes a table at once",
        |life| {
            let at = life.block_breaks()?;
            let Event::Entry { old: block, .. } = life.remove(at).1 else { unreachable!() };
            let make = life.find(at, |event| matches!(event, Event::Entry { old: 8, .. }))?;
            let Event::Entry { old, .. } = &mut life.0[make].1 else { unreachable!() };
            *old = block;
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the table comes before the invalidation is complete",
        |life| {
            let at = life.block_breaks()?;
            let sync = life.sync_after(at)?;
            let make = life.find(sync, |event| matches!(event, Event::Entry { old: 8, .. }))?;
            life.hasten(make, sync);
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation was issued before the block was absent",
        |life| {
            let at = life.block_breaks()?;
            let tlbi = life.tlbi_after(at)?;
            life.hasten(tlbi, at);
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation is of another VMID",
        |life| {
            let at = life.tlbi_after(life.block_breaks()?)?;
            let Event::Tlbi { vmid, .. } = &mut life.0[at].1 else { unreachable!() };
            *vmid += 1;
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation is of leaves of another size",
        |life| {
            let at = life.tlbi_after(life.block_breaks()?)?;
            let Event::Tlbi { scope: Scope::Range { stride, .. }, .. } = &mut life.0[at].1 else {
                unreachable!()
            };
            *stride = 1;
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation names what lies beside",
        |life| {
            let at = life.tlbi_after(life.block_breaks()?)?;
            let Event::Tlbi { scope: Scope::Range { first, end, .. }, .. } = &mut life.0[at].1
            else {
                unreachable!()
            };
            (*first, *end) = (*first + 512, *end + 512);
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "somebody else's invalidation is waited for",
        |life| {
            let at = life.sync_after(life.block_breaks()?)?;
            life.0[at].0 += 1000;
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
    (
        "memory is unmapped, and no TLB is told",
        |life| {
            let (tlbi, sync) = life.invalidation_before(life.memory_freed()?)?;
            life.remove(sync);
            life.remove(tlbi);
            Some(())
        },
        Rule::FrameFreed,
    ),
    (
        "memory is unmapped, and walk caches are spared",
        |life| {
            let (tlbi, _) = life.invalidation_before(life.memory_freed()?)?;
            let Event::Tlbi { scope: Scope::Range { reach, .. }, .. } = &mut life.0[tlbi].1 else {
                unreachable!()
            };
            *reach = mayfly_hwtrace::Reach::Sizes;
            Some(())
        },
        Rule::TableFreed,
    ),
    (
        "a guest goes on with what was unmapped",
        |life| {
            let access = life.find(0, |event| matches!(event, Event::Access { .. }))?;
            let access = life.0[access].clone();
            let enter =
                life.find(life.memory_freed()?, |event| matches!(event, Event::Enter { .. }))?;
            life.0.insert(enter + 1, access);
            Some(())
        },
        Rule::StaleAccess,
    ),
    (
        "a root's VMID is given on, and no TLB is told",
        |life| {
            let give = life.find(0, |event| matches!(event, Event::VmidGive { .. }))?;
            let take = life.find(give, |event| matches!(event, Event::VmidTake { .. }))?;
            let Event::VmidTake { vmid, .. } = life.0[take].1 else { unreachable!() };
            let is_of = |(_, event): &(u32, Event)| matches!(event, Event::Tlbi { vmid: of, .. } if *of == vmid);
            let tlbi = life.0[..take].iter().rposition(is_of)?;
            let sync = life.sync_after(tlbi)?;
            life.remove(sync);
            life.remove(tlbi);
            Some(())
        },
        Rule::VmidReused,
    ),
    (
        "a root is entered under a VMID that it did not take",
        |life| {
            let give = life.find(0, |event| matches!(event, Event::VmidGive { .. }))?;
            let take = life.find(give, |event| matches!(event, Event::VmidTake { .. }))?;
            life.remove(take);
            Some(())
        },
        Rule::VmidNotTaken,
    ),
    (
        "a VMID is given back under a guest",
        |life| {
            let give = life.find(0, |event| matches!(event, Event::VmidGive { .. }))?;
            let leaves = |(_, event): &(u32, Event)| matches!(event, Event::Leave { .. });
            let leave = life.0[..give].iter().rposition(leaves)?;
            life.hasten(give, leave);
            Some(())
        },
        Rule::VmidNotTaken,
    ),
    (
        "no barrier comes before the guest",
        |life| {
            let entry = life.find(0, |event| matches!(event, Event::Entry { .. }))?;
            let enter = life.find(entry, |event| matches!(event, Event::Enter { .. }))?;
            assert!(matches!(life.remove(enter - 1).1, Event::Barrier { .. }));
            Some(())
        },
        Rule::NoBarrier,
    ),
    (
        "no barrier comes before the invalidation",
        |life| {
            let tlbi = life.tlbi_after(life.block_breaks()?)?;
            assert!(matches!(life.remove(tlbi - 1).1, Event::Barrier { .. }));
            Some(())
        },
        Rule::NoBarrier,
    ),
    (
        "a frame is mapped that was not cleaned",
        |life| {
            let clean = life.find(0, |event| matches!(event, Event::Clean { .. }))?;
            life.remove(clean);
            Some(())
        },
        Rule::NotCleaned,
    ),
    (
        "a table is written when it is free",
        |life| {
            let is_fill = |event: &Event| matches!(event, Event::Fill { .. });
            let fill = life.find(0, is_fill)?;
            let Event::Fill { table, value, .. } = life.0[fill].1 else { unreachable!() };
            let free = life.find(
                fill,
                |event| matches!(event, Event::Free { frame, .. } if *frame == table),
            )?;
            let late = Event::Entry { table, index: 0, old: value, new: 0 };
            let cpu = life.0[free].0;
            life.0.insert(free + 1, (cpu, late));
            Some(())
        },
        Rule::WriteAfterFree,
    ),
    (
        "a root goes under a guest",
        |life| {
            let gone = life.find(0, |event| matches!(event, Event::RootGone { .. }))?;
            let Event::RootGone { top } = life.0[gone].1 else { unreachable!() };
            let enters = |(_, event): &(u32, Event)| matches!(event, Event::Enter { top: of, .. } if *of == top);
            let enter = life.0[..gone].iter().rposition(enters)?;
            life.hasten(gone, enter + 1);
            Some(())
        },
        Rule::RootGone,
    ),
    (
        "an entry leads to a table that another leads to",
        |life| {
            let make = life
                .find(life.block_breaks()?, |event| matches!(event, Event::Entry { old: 8, .. }))?;
            let (cpu, Event::Entry { table, index, new, .. }) = life.0[make].clone() else {
                unreachable!()
            };
            let again = Event::Entry { table, index: index + 1, old: 0, new };
            life.0.insert(make + 1, (cpu, again));
            Some(())
        },
        Rule::TableTwice,
    ),
    (
        "an entry is written, and nobody is told",
        |life| {
            let at = life.block_breaks()?;
            life.remove(at);
            Some(())
        },
        Rule::LostWrite,
    ),
];
