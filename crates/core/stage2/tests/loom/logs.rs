//! A dirty log's harvest beside faults that mark, and blocks that come back when a log is off.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

use mayfly_stage2::{Format, Level, Mapped, Permissions, Tables};

use super::model::granted::MapsAny;
use super::model::{WHOLE, gfn, gfns, readable, writable};
use super::{BreakFirst, InPlace, OLD, Vcpu, check, vm};

/// Behind page 5: the block of pages 4 to 7 begins at [`OLD`].
const FRAME: u64 = OLD + 1;

const BIT: u64 = 1 << 5;

/// The fault of a logged write to page 5: marks, and then maps, until it is mapped.
fn write<F: Format>(vcpu: &Vcpu<F>, log: &AtomicU64) {
    loop {
        let seen = vcpu.vm.stage2.sample();
        log.fetch_or(BIT, Ordering::Release);
        if vcpu.map(5, Level::PAGE, &writable(FRAME), seen) != Mapped::Retry {
            return;
        }
    }
}

/// Takes the mark, and protects the page.
fn harvest<F: Format>(vcpu: &Vcpu<F>, log: &AtomicU64) {
    if log.swap(0, Ordering::Acquire) & BIT != 0 {
        vcpu.vm.stage2.refuse_faults(&gfns(4, 4));
        vcpu.vm.stage2.write_protect_marked(gfns(4, 4), WHOLE, 1, |_| (gfn(0), BIT));
    }
}

/// `begins` is what page 5 is mapped by, and whether it is marked.
fn harvest_beside_a_fault<F: Format>(is_writable: bool, is_block: bool) {
    let (vm, root) = vm::<F>(2);
    let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
    let log = Arc::new(AtomicU64::new(BIT));
    if is_block {
        here.map(4, Level::MIB2, &readable(OLD), vm.stage2.sample());
    } else {
        here.map_page(5, &if is_writable { writable(FRAME) } else { readable(FRAME) });
    }
    let fault = {
        let log = Arc::clone(&log);
        there.in_thread(move |vcpu| write(vcpu, &log))
    };
    harvest(&here, &log);
    fault.join().unwrap();
    let (level, leaf) = here.translate(5).unwrap();
    assert_eq!(level, Level::PAGE);
    let is_writable = leaf.permissions.contains(Permissions::WRITE);
    let is_marked = log.load(Ordering::Relaxed) & BIT != 0;
    assert!(!is_writable || is_marked, "what is written next is in no harvest");
    drop((here, root));
    vm.end();
}

#[test]
fn no_page_is_writable_whose_mark_a_harvest_has_taken() {
    for is_writable in [false, true] {
        check(move || harvest_beside_a_fault::<InPlace>(is_writable, false));
    }
    check(|| harvest_beside_a_fault::<InPlace>(false, true));
    check(|| harvest_beside_a_fault::<BreakFirst>(false, true));
}

/// Puts a block in the place of the table of pages 4 to 7. Returns whether it did.
fn collapse<F: Format>(vcpu: &Vcpu<F>) -> bool {
    let (seen, section) = (vcpu.vm.stage2.sample(), vcpu.reader.lock());
    let block = vcpu.root.grant_any(gfn(4), Level::MIB2, &writable(OLD), seen, &section);
    vcpu.root.collapse(WHOLE, [None, Some(block)]) == 1
}

fn collapse_beside_a_fault<F: Format>() {
    let (vm, root) = vm::<F>(2);
    let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
    here.map_page(4, &readable(OLD));
    let fault =
        there.in_thread(|vcpu| while vcpu.map_page(5, &writable(FRAME)) == Mapped::Retry {});
    assert!(collapse(&here), "nothing but a fault below it is under way");
    fault.join().unwrap();
    for page in 4..8 {
        assert_eq!(here.translate(page), Some((Level::MIB2, writable(OLD))));
    }
    assert!(!collapse(&here), "it is a block");
    drop((here, root));
    vm.end();
}

#[test]
fn a_block_that_takes_a_tables_place_takes_no_right_from_a_fault_beside_it() {
    check(collapse_beside_a_fault::<InPlace>);
    check(collapse_beside_a_fault::<BreakFirst>);
}

#[test]
fn no_block_comes_back_while_the_host_takes_its_memory() {
    for tables in [Tables::Keep, Tables::Free] {
        check(move || {
            let (vm, root) = vm::<InPlace>(2);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            here.map_page(4, &readable(OLD));
            let block = there.in_thread(collapse);
            {
                let invalidation = vm.stage2.begin_invalidation(&gfns(4, 4));
                vm.stage2.zap(&invalidation, gfns(4, 4), tables, WHOLE);
                assert_eq!(here.translate(5), None, "mapped while it is being invalidated");
            }
            let is_block = block.join().unwrap();
            assert!(is_block || here.translate(5).is_none());
            drop((here, root));
            vm.end();
        });
    }
}
