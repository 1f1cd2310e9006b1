//! What the host takes away while the guest runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread::{spawn, yield_now};

use mayfly_memslot::{Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region};
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::{Entries, Scope, Span};
use mayfly_stage2::Level;
use mayfly_vm::{Reason, SlotZap};

use crate::common::{
    Order, Outcome, Setup, Stop, TestVcpu, TestVm, deleted, hva, joined, read, region, translation,
    vm, write,
};

const REASONS: [Reason; 8] = [
    Reason::Unmap,
    Reason::Exit,
    Reason::Migrate,
    Reason::Reclaim { coherent: true },
    Reason::Reclaim { coherent: false },
    Reason::Protect,
    Reason::Merge,
    Reason::CopyOnWrite,
];

/// A slot over the host memory of slot 0.
fn alias(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region { backing: hva(0, 0), ..region(index, gfn, pages) }
}

/// A VM with two slots over the same host memory, and a vCPU that has all of it mapped.
fn twice(setup: &Setup) -> (TestVm, TestVcpu) {
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&alias(0, 0x10, 8)).unwrap();
    vm.set_memory_region(&alias(1, 0x8000, 8)).unwrap();
    vm.set_memory_region(&region(2, 0x18, 8)).unwrap();
    for gfn in (0x10..0x20).chain(0x8000..0x8008) {
        write(&mut vcpu, gfn * PAGE_SIZE, &[1]);
    }
    assert_eq!(setup.hardware.take_invalidations(), []);
    (vm, vcpu)
}

#[test]
fn memory_is_zapped_wherever_it_is_mapped_and_nothing_else_is() {
    for reason in REASONS {
        let setup = Setup::new(SlotZap::Range);
        let (vm, mut vcpu) = twice(&setup);
        let frames = setup.hardware.live();
        let invalidation = vm.invalidate_start(hva(0, 2 * PAGE_SIZE), 3 * PAGE_SIZE, reason);
        let mut scopes: Vec<_> =
            setup.hardware.take_invalidations().into_iter().map(|(_, scope)| scope).collect();
        scopes.sort_by_key(|scope| format!("{scope:?}"));
        let ranges = [0x12, 0x8002].map(|gfn| {
            let gfns = Gfn::new(gfn)..Gfn::new(gfn + 3);
            Scope::Range(Span { gfns, stride: 1, entries: Entries::Leaves })
        });
        assert_eq!(scopes, ranges, "{reason:?}: when it has begun, no TLB knows of it");
        for page in 0..8 {
            let is_left = !(2..5).contains(&page);
            for gfn in [0x10 + page, 0x8000 + page] {
                assert_eq!(translation(&mut vcpu, gfn).is_some(), is_left, "{reason:?} {gfn:#x}");
            }
            assert!(translation(&mut vcpu, 0x18 + page).is_some());
        }
        drop(invalidation);
        assert_eq!(setup.hardware.live(), frames, "no table was empty");
    }
}

#[test]
fn a_table_is_given_back_where_memory_goes_for_good_and_kept_where_it_comes_back() {
    for reason in REASONS {
        let setup = Setup::new(SlotZap::Range);
        let vm = setup.vm();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        vm.set_memory_region(&region(0, 0x200, 0x200)).unwrap();
        write(&mut vcpu, 0x20_0000, &[1]);
        let mapped = setup.hardware.live();
        drop(vm.invalidate_start(hva(0, 0), 0x20_0000, reason));
        let gone = matches!(reason, Reason::Unmap | Reason::Exit);
        assert_eq!(mapped - setup.hardware.live(), usize::from(gone), "{reason:?}");
    }
}

#[test]
fn a_fault_waits_for_the_end_of_the_invalidation_and_finds_what_the_host_says_then() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let order = Order::default();
    let invalidation = vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Migrate);
    setup.memory.take_asked();
    let (asked, was_asked) = channel();
    setup.memory.when_asked(move || asked.send(()).unwrap());
    let noting = order.clone();
    let running = spawn(move || {
        let outcome = write(&mut vcpu, 0x1_0000, &[1]);
        noting.note("the access was made");
        (outcome, vcpu)
    });
    // It has an answer, and may not use it.
    was_asked.recv().unwrap();
    let mut other = vm.create_vcpu(1).unwrap();
    assert_eq!(write(&mut other, 0x1_1000, &[1]), Outcome::Memory(hva(0, PAGE_SIZE)));
    assert_eq!(translation(&mut other, 0x10), None);
    setup.memory.move_page(hva(0, 0), 0x7777);
    order.note("the page has moved");
    drop(invalidation);
    let (outcome, mut vcpu) = joined(running);
    assert_eq!(outcome, Outcome::Memory(Hva::new(0x777_7000)));
    assert_eq!(order.take(), ["the page has moved", "the access was made"]);
    assert_eq!(write(&mut vcpu, 0x800_0000, &[1]), Outcome::Memory(Hva::new(0x777_7000)));
}

#[test]
fn an_answer_from_before_an_invalidation_is_not_used_after_it() {
    for end_first in [false, true] {
        let setup = Setup::new(SlotZap::Range);
        let vm = setup.vm();
        vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let order = Order::default();
        let (stop, stopped) = Stop::new(&order);
        setup.memory.when_asked(move || stop.here());
        let running = spawn(move || (write(&mut vcpu, 0x1_0000, &[1]), vcpu));
        stopped.wait();
        let invalidation = vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::CopyOnWrite);
        setup.memory.move_page(hva(0, 0), 0x5555);
        if end_first {
            drop(invalidation);
            stopped.go_on();
        } else {
            stopped.go_on();
            drop(invalidation);
        }
        let (outcome, vcpu) = joined(running);
        assert_eq!(outcome, Outcome::Memory(Hva::new(0x555_5000)));
        let asked = setup.memory.take_asked();
        assert!(asked.len() >= 2 && asked.iter().all(|&ask| ask == (hva(0, 0), true)), "{asked:?}");
        drop(vcpu);
    }
}

#[test]
fn the_host_may_take_a_page_away_while_it_is_asked_for_it() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Protect));
    let (inside, memory) = (vm.clone(), setup.memory.clone());
    setup.memory.when_asked(move || {
        let invalidation = inside.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::CopyOnWrite);
        memory.move_page(hva(0, 0), 0x4444);
        drop(invalidation);
    });
    assert_eq!(write(&mut vcpu, 0x1_0000, &[1]), Outcome::Memory(Hva::new(0x444_4000)));
}

#[test]
fn a_page_taken_away_while_it_is_asked_for_waits_for_no_reader_however_many_tables_do() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    // More tables than may await their readers.
    let pages = 9 << 18;
    vm.set_memory_region(&region(0, 0, pages)).unwrap();
    vm.set_memory_region(&region(40, pages, 4)).unwrap();
    for gfn in (0..pages).step_by(512) {
        read(&mut vcpu, gfn * PAGE_SIZE, 1);
    }
    let inside = vm.clone();
    setup.memory.when_asked(move || {
        // The caller is one.
        drop(inside.invalidate_start(hva(0, 0), pages * PAGE_SIZE, Reason::Unmap));
        drop(inside.invalidate_start(hva(40, 0), PAGE_SIZE, Reason::CopyOnWrite));
    });
    assert_eq!(write(&mut vcpu, pages * PAGE_SIZE, &[1]), Outcome::Memory(hva(40, 0)));
    assert_eq!(vm.srcu().stats().sleeps, 0, "nobody waited");
}

#[test]
fn only_what_a_device_reads_past_the_caches_is_cleaned_and_exactly_that() {
    for reason in REASONS {
        let setup = Setup::new(SlotZap::Range);
        let (vm, mut vcpu) = twice(&setup);
        setup.memory.move_page(hva(0, 3 * PAGE_SIZE), 0x9999);
        drop(vm.invalidate_start(hva(0, 3 * PAGE_SIZE), PAGE_SIZE, Reason::Migrate));
        write(&mut vcpu, 0x1_3000, &[1]);
        assert_eq!(setup.caches.take_cleaned(), []);
        drop(vm.invalidate_start(hva(0, 3 * PAGE_SIZE), PAGE_SIZE, reason));
        let expected: &[_] = match reason {
            Reason::Reclaim { coherent: false } => &[(Pfn::new(0x9999), 1)],
            _ => &[],
        };
        assert_eq!(setup.caches.take_cleaned(), expected, "{reason:?}");
    }
}

#[test]
fn of_a_block_only_the_pages_that_go_are_cleaned() {
    let (setup, vm, mut vcpu) = Setup::in_blocks(0x400);
    for page in [0, 0x200] {
        write(&mut vcpu, (0x200 + page) * PAGE_SIZE, &[1]);
    }
    let reason = Reason::Reclaim { coherent: false };
    let first = hva(0, 0).get() / PAGE_SIZE;
    drop(vm.invalidate_start(hva(0, 0x1f0 * PAGE_SIZE), 0x20 * PAGE_SIZE, reason));
    let cleaned = [(Pfn::new(first + 0x1f0), 0x10), (Pfn::new(first + 0x200), 0x10)];
    assert_eq!(setup.caches.take_cleaned(), cleaned);
}

#[test]
fn a_block_in_the_place_of_a_table_over_the_same_frames_cleans_nothing() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, 0x200, 0x200) };
    vm.set_memory_region(&logged).unwrap();
    setup.memory.set_level(Level::MIB2);
    for page in 0..0x200 {
        read(&mut vcpu, (0x200 + page) * PAGE_SIZE, 1);
    }
    let mapped = setup.hardware.live();
    vm.set_memory_region(&region(0, 0x200, 0x200)).unwrap();
    write(&mut vcpu, 0x20_0000, &[1]);
    assert_eq!(translation(&mut vcpu, 0x200).unwrap().0, Level::MIB2);
    assert_eq!(setup.caches.take_cleaned(), []);
    drop(vm.invalidate_start(Hva::new(0), PAGE_SIZE, Reason::Unmap));
    vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    assert!(setup.hardware.live() < mapped, "the table was given back");
    assert_eq!(setup.caches.take_cleaned(), []);
}

#[test]
fn a_page_counts_as_accessed_once_for_each_time_that_the_guest_came_back_to_it() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let all = || vm.age(hva(0, 0), 8 * PAGE_SIZE);
    assert_eq!(all(), 16, "in both slots");
    assert_eq!(all(), 0);
    setup.memory.take_asked();
    assert_eq!(read(&mut vcpu, 0x1_3000, 1), Outcome::Memory(hva(0, 3 * PAGE_SIZE)));
    assert_eq!(vm.age(hva(0, 0), 3 * PAGE_SIZE), 0);
    assert_eq!(all(), 1);
    assert_eq!(vm.age(Hva::new(0), u64::MAX), 8, "those of the other slot");
    assert_eq!(setup.hardware.take_invalidations(), [], "the TLBs were left alone");
}

#[test]
fn a_block_counts_as_all_its_pages() {
    let (_setup, vm, mut vcpu) = Setup::in_blocks(0x400);
    read(&mut vcpu, 0x20_0000, 1);
    assert_eq!(vm.age(hva(0, 0x1000), PAGE_SIZE), 0x200);
    assert_eq!(vm.age(hva(0, 0), 0x40_0000), 0);
}

#[test]
fn slots_change_only_between_invalidations() {
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let setup = Setup::new(slot_zap);
        let (vm, mut vcpu) = twice(&setup);
        let order = Order::default();
        let invalidations = [0, 1]
            .map(|page| vm.invalidate_start(hva(0, page * PAGE_SIZE), PAGE_SIZE, Reason::Protect));
        let waits = setup.hardware.waits();
        let (changing, noting) = (vm.clone(), order.clone());
        let changing = spawn(move || {
            changing.set_memory_region(&alias(3, 0x9000, 8)).unwrap();
            changing.set_memory_region(&deleted(alias(1, 0, 0))).unwrap();
            noting.note("the slots have changed");
        });
        while setup.hardware.waits() == waits && !changing.is_finished() {
            yield_now();
        }
        for (invalidation, what) in invalidations.into_iter().zip(["one is over", "both are over"])
        {
            assert_eq!(read(&mut vcpu, 0x1_2000, 1), Outcome::Memory(hva(0, 2 * PAGE_SIZE)));
            order.note(what);
            drop(invalidation);
        }
        joined(changing);
        assert_eq!(order.take(), ["one is over", "both are over", "the slots have changed"]);
        assert_eq!(translation(&mut vcpu, 0x8003), None);
    }
}

#[test]
fn memory_that_no_slot_has_is_nobodys_to_zap_and_holds_up_no_fault() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    read(&mut vcpu, 0x1_0000, 1);
    let invalidations = [
        vm.invalidate_start(Hva::new(0), hva(0, 0).get(), Reason::Unmap),
        vm.invalidate_start(hva(0, 4 * PAGE_SIZE), PAGE_SIZE, Reason::Unmap),
        vm.invalidate_start(hva(0, 0), 0, Reason::Unmap),
    ];
    for page in 0..4 {
        assert_eq!(
            read(&mut vcpu, 0x1_0000 + page * PAGE_SIZE, 1),
            Outcome::Memory(hva(0, page * PAGE_SIZE))
        );
    }
    drop(invalidations);
}

#[test]
fn a_moved_slot_is_invalidated_where_it_is_now() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    vm.set_memory_region(&Region { gpa: Gpa::new(0x4000_0000), ..alias(1, 0, 8) }).unwrap();
    read(&mut vcpu, 0x4000_0000, 1);
    drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Merge));
    assert_eq!([0x10, 0x4_0000, 0x8000].map(|gfn| translation(&mut vcpu, gfn)), [None; 3]);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "release builds do not look for it")]
fn who_changes_slots_inside_his_own_invalidation_is_told() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, _vcpu) = twice(&setup);
    for region in [alias(3, 0x9000, 8), deleted(alias(1, 0, 0))] {
        let invalidation = vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Unmap);
        let change = AssertUnwindSafe(|| vm.set_memory_region(&region));
        let told = catch_unwind(change).unwrap_err();
        let told = told
            .downcast::<String>()
            .map_or_else(|told| told.downcast::<&str>().unwrap().to_string(), |told| *told);
        assert!(told.contains("inside an invalidation of the caller's own"), "{told}");
        // Nothing has changed, and afterwards it can be.
        drop(invalidation);
        vm.set_memory_region(&region).unwrap();
    }
    // One that was left may be another's to end, who need not be here.
    let left = vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Unmap).leave();
    let (ending, changing) = (vm.clone(), alias(4, 0xa000, 8));
    let ends = spawn(move || ending.invalidate_end(left).unwrap());
    vm.set_memory_region(&changing).unwrap();
    joined(ends);
}

#[test]
fn pages_that_are_picked_go_wherever_they_are_mapped_and_all_others_stay() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    // Of the host's pages from page 1 on: 2, 3 and 6.
    let next = |page: u64| match page {
        0..3 => page.max(1)..3,
        3..6 => page.max(5)..6,
        _ => page..page,
    };
    let invalidation = vm.invalidate_picked(hva(0, PAGE_SIZE), 7 * PAGE_SIZE, next);
    let mut refused = 0;
    for page in 0..8 {
        let is_left = ![2, 3, 6].contains(&page);
        for gfn in [0x10 + page, 0x8000 + page] {
            assert_eq!(translation(&mut vcpu, gfn).is_some(), is_left, "{gfn:#x}");
            refused += u64::from(!is_left);
        }
        assert!(translation(&mut vcpu, 0x18 + page).is_some(), "another memory");
    }
    assert_eq!(refused, 6);
    let scopes = setup.hardware.take_invalidations();
    assert!(scopes.iter().all(|(_, scope)| *scope == Scope::All), "{scopes:?}");
    assert!(!scopes.is_empty(), "the guest's own tables may be among them");
    drop(invalidation);
    for page in [2, 3, 6] {
        let found = read(&mut vcpu, (0x10 + page) * PAGE_SIZE, 1);
        assert_eq!(found, Outcome::Memory(hva(0, page * PAGE_SIZE)));
    }
}

#[test]
fn nothing_is_zapped_where_no_page_is_picked() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    for none in [u64::MAX..u64::MAX, 8..8, 8..9, 3..3] {
        drop(vm.invalidate_picked(hva(0, 0), 8 * PAGE_SIZE, |_| none.clone()));
        for page in 0..8 {
            assert!(translation(&mut vcpu, 0x10 + page).is_some(), "{none:?}");
        }
    }
}

#[test]
fn all_memory_goes_over_without_a_visit_and_nothing_is_mapped_until_the_end() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let before = setup.hardware.live();
    let invalidation = vm.invalidate_all();
    for gfn in (0x10..0x20).chain(0x8000..0x8008) {
        assert_eq!(translation(&mut vcpu, gfn), None, "{gfn:#x}");
    }
    assert_eq!(setup.hardware.take_invalidations(), [], "no vCPU runs under that VMID any more");
    assert!(setup.hardware.live() > before, "the old tables are there");
    assert_eq!(setup.reclaimer.frames(), 0, "and nobody is woken for them before the end");
    let writing = setup.hardware.try_write(vcpu, 0x10 * PAGE_SIZE);
    assert!(!writing.is_finished(), "nothing is mapped before the change is made");
    drop(invalidation);
    assert_eq!(joined(writing), Outcome::Memory(hva(0, 0)));
    assert!(setup.reclaimer.frames() > 0, "then they are the reclaimer's");
}

#[test]
fn where_there_is_no_memory_for_fresh_roots_all_is_zapped() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    setup.hardware.refuse_frames_after(0);
    drop(vm.invalidate_all());
    assert!(setup.hardware.refuse_no_frames() > 0);
    for gfn in (0x10..0x20).chain(0x8000..0x8008) {
        assert_eq!(translation(&mut vcpu, gfn), None, "{gfn:#x}");
    }
}
