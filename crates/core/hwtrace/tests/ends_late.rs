//! Events that are written down long after they began, as where the thread that drew the first ticket lost its processor
//! before it drew the second.

use mayfly_hwtrace::{Barrier, Checker, Event, Family, Options, Record, Rule, Scope};

const TOP: u64 = 0x100;
const VMID: u16 = 7;
/// A page that may be written, the same when it may not, and another frame for it. (Arm: `S2AP` is bits 7 and 6.)
const WRITABLE: u64 = 0x4_17ff;
const PROTECTED: u64 = 0x4_177f;
const REPLACED: u64 = 0x5_177f;

/// Events that follow each other, but for what [began before](Trace::late).
struct Trace {
    checker: Checker,
    ticket: u64,
    line: u64,
}

impl Trace {
    /// A root whose only table has the page, which a guest has used.
    fn new() -> Self {
        let mut trace = Self { checker: Checker::new(Options::default()), ticket: 1, line: 1 };
        let root = Event::Root { top: TOP, order: 0, levels: 1, family: Family::Arm };
        trace.event(0, root);
        trace.event(0, entry(0, WRITABLE));
        trace.event(0, Event::Barrier { kind: Barrier::Walks });
        trace.event(0, Event::VmidTake { vmid: VMID, generation: 0 });
        trace.event(9, Event::Enter { tlb: 9, top: TOP, vmid: VMID });
        trace
    }

    fn ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    fn event(&mut self, cpu: u32, event: Event) {
        let begin = self.ticket();
        self.late(begin, cpu, event);
    }

    fn late(&mut self, begin: u64, cpu: u32, event: Event) {
        let end = self.ticket();
        self.line += 1;
        self.checker.take(self.line, &Record { begin, end, cpu, event });
    }

    fn invalidate(&mut self, cpu: u32, vmid: u16) {
        self.event(cpu, Event::Barrier { kind: Barrier::Walks });
        let id = self.line;
        self.event(cpu, Event::Tlbi { id, vmid, scope: Scope::All });
        self.event(cpu, Event::Sync { id });
    }

    fn finish(self) -> Vec<Rule> {
        self.checker.finish().into_iter().map(|broken| broken.rule).collect()
    }
}

fn entry(old: u64, new: u64) -> Event {
    Event::Entry { table: TOP, index: 0, old, new }
}

/// The page's first frame.
const FRAME: u64 = 0x41;

/// CPU 1 protects the page, and its record comes when `others` more invalidations have. Meanwhile CPU 2 finds it
/// protected, invalidates it if it `forgets`, and puts another frame in its place; if it `frees`, it invalidates that, and
/// frees the old one.
fn protected_late(others: u32, forgets: bool, frees: bool) -> Vec<Rule> {
    let mut trace = Trace::new();
    let begin = trace.ticket();
    if forgets {
        trace.invalidate(2, VMID);
    }
    trace.event(2, entry(PROTECTED, REPLACED));
    if frees {
        trace.invalidate(2, VMID);
        trace.event(2, Event::Free { frame: FRAME, order: 0 });
    }
    for _ in 0..others {
        trace.invalidate(3, VMID + 1);
    }
    trace.late(begin, 1, entry(WRITABLE, PROTECTED));
    trace.invalidate(1, VMID);
    trace.finish()
}

#[test]
fn an_invalidation_counts_however_many_come_before_what_it_is_for_is_written_down() {
    for others in [0, 300, 100_000] {
        assert_eq!(protected_late(others, true, false), [], "after {others}");
    }
}

#[test]
fn where_there_is_none_that_is_found_as_late_as_the_invalidations_are_remembered() {
    for others in [0, 300, 10_000] {
        let found = protected_late(others, false, false);
        assert_eq!(found, [Rule::BreakBeforeMake], "after {others}");
    }
}

#[test]
fn one_that_came_too_late_is_none_even_where_it_is_complete_before_what_it_is_for_is_written_down()
{
    for others in [0, 300, 10_000] {
        let found = protected_late(others, false, true);
        assert_eq!(found, [Rule::BreakBeforeMake], "after {others}");
    }
}

#[test]
fn what_an_entry_had_is_not_held_against_it_twice_where_its_frame_is_free_before_that_is_written_down()
 {
    assert_eq!(protected_late(0, true, true), []);
    assert_eq!(protected_late(300, true, true), []);
}

#[test]
fn writes_of_an_entry_wait_for_one_that_is_written_down_late() {
    let mut trace = Trace::new();
    let begin = trace.ticket();
    for _ in 0..500 {
        trace.event(2, entry(PROTECTED, 0));
        trace.invalidate(2, VMID);
        trace.event(2, entry(0, PROTECTED));
    }
    trace.late(begin, 1, entry(WRITABLE, PROTECTED));
    trace.invalidate(1, VMID);
    assert_eq!(trace.finish(), []);
}

/// EPT's page table entry with the accessed bit set, and with the dirty bit as well; and a table's.
const ACCESSED: u64 = 0x4_1137;
const DIRTY: u64 = ACCESSED | 1 << 9;
const TABLE: u64 = 0x200;
const LEADS_THERE: u64 = TABLE << 12 | 7;

/// A page is put into a table that nothing is known to lead to, hardware notes a write, and it becomes `then`; what leads
/// there was written before, and is written down after, if it is `linked`.
fn marked_before_it_is_known(linked: bool, then: u64) -> Vec<Rule> {
    let mut trace = Trace { checker: Checker::new(Options::default()), ticket: 1, line: 1 };
    let root = Event::Root { top: TOP, order: 0, levels: 2, family: Family::Ept };
    trace.event(0, root);
    let of = |table, old, new| Event::Entry { table, index: 0, old, new };
    let begin = trace.ticket();
    trace.event(2, of(TABLE, 0, ACCESSED));
    trace.event(2, of(TABLE, DIRTY, 0));
    trace.event(2, of(TABLE, 0, then));
    if linked {
        trace.late(begin, 1, of(TOP, 0, LEADS_THERE));
    }
    trace.finish()
}

#[test]
fn what_hardware_notes_in_a_table_is_told_from_a_lost_write_when_it_is_known_whose_it_is() {
    assert_eq!(marked_before_it_is_known(true, ACCESSED), []);
    assert_eq!(marked_before_it_is_known(true, DIRTY), []);
    assert_eq!(marked_before_it_is_known(false, ACCESSED), [Rule::LostWrite]);
}

/// An absent entry that somebody has frozen, and one that somebody else waits for besides.
const FROZEN: u64 = 1 << 3;
const AWAITED: u64 = 2 << 3;

/// An entry is frozen and put back, frozen again, waited for, and put back; the three in the middle overlap, and who did
/// the first of them is the last to write it down.
#[test]
fn what_absent_entries_note_may_have_come_in_another_order_than_is_written_down() {
    let mut trace = Trace::new();
    trace.event(1, entry(WRITABLE, FROZEN));
    let [thaws, freezes, waits] = [trace.ticket(), trace.ticket(), trace.ticket()];
    trace.late(waits, 3, entry(FROZEN, AWAITED));
    trace.late(freezes, 2, entry(WRITABLE, FROZEN));
    trace.late(thaws, 1, entry(FROZEN, WRITABLE));
    trace.event(2, entry(AWAITED, WRITABLE));
    assert_eq!(trace.finish(), []);
}
