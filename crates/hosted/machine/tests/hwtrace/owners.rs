//! Faults in to whom frames and VMIDs belong, and in what other CPUs do.

use mayfly_hwtrace::{Event, Rule};

use crate::faults::Fault;
use crate::life::Edit;

/// Where a page is mapped: the event's place, the CPU, and the table, index and bits.
fn page_mapped(life: &Edit) -> Option<(usize, u32, (u64, u32, u64))> {
    let is_page = |bits: u64| bits & 3 == 3 && bits >> 6 & 3 != 0;
    let at = life.find(0, |event| match *event {
        Event::Entry { old, new, .. } => old & 1 == 0 && is_page(new) && !leads(life, new),
        _ => false,
    })?;
    let (cpu, Event::Entry { table, index, new, .. }) = life.0[at] else { unreachable!() };
    Some((at, cpu, (table, index, new)))
}

/// Whether what `bits` names is written as a table.
fn leads(life: &Edit, bits: u64) -> bool {
    let frame = frame_of(bits);
    let is_it = |event: &Event| match *event {
        Event::Entry { table, .. } | Event::Fill { table, .. } => table == frame,
        _ => false,
    };
    life.0.iter().any(|(_, event)| is_it(event))
}

fn frame_of(bits: u64) -> u64 {
    bits >> 12 & 0xf_ffff_ffff
}

/// `bits` with another frame.
fn with_frame(bits: u64, frame: u64) -> u64 {
    bits & !(0xf_ffff_ffff << 12) | frame << 12
}

/// Where an entry comes to lead to a table, by which CPU, and the table that it leads to.
fn table_linked(life: &Edit) -> Option<(usize, u32, u64)> {
    let at = life.find(0, |event| match *event {
        Event::Entry { old, new, .. } => old & 1 == 0 && new & 3 == 3 && leads(life, new),
        _ => false,
    })?;
    let (cpu, Event::Entry { new, .. }) = life.0[at] else { unreachable!() };
    Some((at, cpu, frame_of(new)))
}

/// Maps `frame` where a page comes to be mapped, for a moment before that.
fn map_before(life: &mut Edit, frame: u64) -> Option<()> {
    let (at, cpu, (table, index, bits)) = page_mapped(life)?;
    let new = with_frame(bits, frame);
    life.0.insert(at, (cpu, Event::Entry { table, index, old: 0, new }));
    life.0.insert(at + 1, (cpu, Event::Entry { table, index, old: new, new: 0 }));
    Some(())
}

pub(crate) const FAULTS: [Fault; 15] = [
    (
        "a frame that is free is mapped",
        |life| {
            let (at, cpu, (.., bits)) = page_mapped(life)?;
            life.0.insert(at, (cpu, Event::Free { frame: frame_of(bits), order: 0 }));
            Some(())
        },
        Rule::FreeFrame,
    ),
    (
        "a frame that is free is used",
        |life| {
            let at = life.find(0, |event| matches!(event, Event::Access { .. }))?;
            let (cpu, Event::Access { frame, .. }) = life.0[at] else { unreachable!() };
            life.0.insert(at, (cpu, Event::Free { frame, order: 0 }));
            Some(())
        },
        Rule::FreeFrame,
    ),
    (
        "a frame that is free becomes a table",
        |life| {
            let (at, cpu, frame) = table_linked(life)?;
            life.0.insert(at, (cpu, Event::Free { frame, order: 0 }));
            Some(())
        },
        Rule::FreeFrame,
    ),
    (
        "a guest is given its own table",
        |life| {
            let (.., (table, ..)) = page_mapped(life)?;
            map_before(life, table)
        },
        Rule::TableMapped,
    ),
    (
        "a guest is given its own root",
        |life| {
            let root = life.find(0, |event| matches!(event, Event::Root { .. }))?;
            let Event::Root { top, .. } = life.0[root].1 else { unreachable!() };
            map_before(life, top)
        },
        Rule::TableMapped,
    ),
    (
        "a guest's page becomes a table",
        |life| {
            let (at, cpu, (.., bits)) = page_mapped(life)?;
            let root = life.find(0, |event| matches!(event, Event::Root { .. }))?;
            let Event::Root { top, .. } = life.0[root].1 else { unreachable!() };
            let new = frame_of(bits) << 12 | 3;
            let link = Event::Entry { table: top, index: 300, old: 0, new };
            life.0.insert(at + 1, (cpu, link));
            Some(())
        },
        Rule::TableMapped,
    ),
    (
        "a frame is given out twice",
        |life| {
            let at = life.find(0, |event| matches!(event, Event::Give { .. }))?;
            let again = life.0[at].clone();
            life.0.insert(at + 1, again);
            Some(())
        },
        Rule::GivenTwice,
    ),
    (
        "a VMID is never taken",
        |life| {
            let take = life.find(0, |event| matches!(event, Event::VmidTake { .. }))?;
            life.remove(take);
            Some(())
        },
        Rule::VmidNotTaken,
    ),
    (
        "a generation begins, and a VMID is not kept",
        |life| {
            let take = life.find(0, |event| matches!(event, Event::VmidTake { .. }))?;
            let (cpu, Event::VmidTake { generation, .. }) = life.0[take] else { unreachable!() };
            life.0.insert(take + 1, (cpu, Event::Generation { generation: generation + 1 }));
            Some(())
        },
        Rule::VmidNotTaken,
    ),
    (
        "a table is filled when it is free",
        |life| {
            let fill = life.find(0, |event| matches!(event, Event::Fill { .. }))?;
            let (cpu, Event::Fill { table, .. }) = life.0[fill] else { unreachable!() };
            life.0.insert(fill, (cpu, Event::Free { frame: table, order: 0 }));
            Some(())
        },
        Rule::WriteAfterFree,
    ),
    (
        "another CPU invalidates, and no barrier comes between",
        |life| {
            let tlbi = life.tlbi_after(life.block_breaks()?)?;
            let sync = life.sync_after(tlbi)?;
            life.0[tlbi].0 += 1000;
            life.0[sync].0 += 1000;
            assert!(matches!(life.remove(tlbi - 1).1, Event::Barrier { .. }));
            Some(())
        },
        Rule::NoBarrier,
    ),
    (
        "a guest uses its TLB when it has been left",
        |life| {
            let at = life.find(0, |event| matches!(event, Event::Access { .. }))?;
            let leave = life.find(at, |event| matches!(event, Event::Leave { .. }))?;
            let again = life.0[at].clone();
            life.0.insert(leave + 1, again);
            Some(())
        },
        Rule::AccessOutside,
    ),
    (
        "memory is freed and given out again, and its invalidation is never complete",
        |life| {
            let freed = life.memory_freed()?;
            let (tlbi, _) = life.invalidation_before(freed)?;
            let (cpu, Event::Free { frame, order }) = life.0[freed] else { unreachable!() };
            life.0.insert(freed + 1, (cpu, Event::Give { frame, order }));
            let mut at = 0;
            life.0.retain(|(_, event)| {
                at += 1;
                at <= tlbi || !matches!(event, Event::Sync { .. })
            });
            Some(())
        },
        Rule::FrameFreed,
    ),
    (
        "a frame is freed, and stays mapped",
        |life| {
            let at = life.find(0, |event| matches!(event, Event::Access { .. }))?;
            let (cpu, Event::Access { frame, .. }) = life.0[at] else { unreachable!() };
            life.0.insert(at + 1, (cpu, Event::Free { frame, order: 0 }));
            Some(())
        },
        Rule::FrameFreed,
    ),
    (
        "a page has another memory type at once",
        |life| {
            let (at, cpu, (table, index, bits)) = page_mapped(life)?;
            let device = bits & !(0xf << 2);
            life.0.insert(at + 1, (cpu, Event::Entry { table, index, old: bits, new: device }));
            life.0.insert(at + 2, (cpu, Event::Entry { table, index, old: device, new: bits }));
            Some(())
        },
        Rule::BreakBeforeMake,
    ),
];
