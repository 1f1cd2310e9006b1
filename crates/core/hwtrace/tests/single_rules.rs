//! Traces that break one rule by one event, and keep all others.

use mayfly_hwtrace::{Barrier, Checker, Event, Family, Options, Record, Rule, Scope};

const TOP: u64 = 0x100;
const VMID: u16 = 7;
const GUEST: u32 = 9;
/// The frame of a page, an entry that maps it to be read, and the same as device memory. (Arm: `MemAttr` is bits 5 to 2.)
const FRAME: u64 = 0x41;
const MAPPED: u64 = 0x4_177f;
const DEVICE: u64 = MAPPED & !0x3c;

/// A root whose only page a guest has used, and then `events`, each of CPU 0 but those of the guest's.
fn broken_by(events: impl IntoIterator<Item = Event>) -> Vec<Rule> {
    let begun = [
        Event::Root { top: TOP, order: 0, levels: 1, family: Family::Arm },
        Event::Give { frame: FRAME, order: 0 },
        entry(0, MAPPED),
        Event::Barrier { kind: Barrier::Walks },
        Event::VmidTake { vmid: VMID, generation: 1 },
        ENTER,
    ];
    let mut checker = Checker::new(Options::default());
    for (line, event) in begun.into_iter().chain(events).enumerate() {
        let line = line as u64 + 1;
        let cpu =
            if matches!(event, Event::Enter { .. } | Event::Leave { .. }) { GUEST } else { 0 };
        checker.take(line, &Record { begin: 2 * line, end: 2 * line + 1, cpu, event });
    }
    checker.finish().into_iter().map(|broken| broken.rule).collect()
}

const ENTER: Event = Event::Enter { tlb: GUEST, top: TOP, vmid: VMID };
const LEAVE: Event = Event::Leave { tlb: GUEST, vmid: VMID };

fn entry(old: u64, new: u64) -> Event {
    Event::Entry { table: TOP, index: 0, old, new }
}

/// All that TLBs have of the root is forgotten.
fn invalidated() -> [Event; 3] {
    [
        Event::Barrier { kind: Barrier::Walks },
        Event::Tlbi { id: 1, vmid: VMID, scope: Scope::All },
        Event::Sync { id: 1 },
    ]
}

#[test]
fn a_generation_takes_each_number_that_is_not_kept() {
    let began = Event::Generation { generation: 2 };
    assert_eq!(broken_by([LEAVE, began.clone(), ENTER]), [Rule::VmidNotTaken]);
    let kept = Event::VmidKeep { vmid: VMID, generation: 2 };
    assert_eq!(broken_by([LEAVE, kept, began, ENTER]), []);
}

#[test]
fn a_frame_is_not_freed_while_it_is_mapped_for_a_guest() {
    let freed = Event::Free { frame: FRAME, order: 0 };
    assert_eq!(broken_by([freed.clone(), LEAVE]), [Rule::FrameFreed]);
    let unmapped = [entry(MAPPED, 0)].into_iter().chain(invalidated());
    assert_eq!(broken_by(unmapped.chain([freed, LEAVE])), []);
}

#[test]
fn a_memory_type_changes_by_way_of_an_absent_entry() {
    let at_once = [entry(MAPPED, DEVICE)].into_iter().chain(invalidated());
    assert_eq!(broken_by(at_once), [Rule::BreakBeforeMake]);
    let broken = [entry(MAPPED, 0)].into_iter().chain(invalidated());
    assert_eq!(broken_by(broken.chain([entry(0, DEVICE)])), []);
}
