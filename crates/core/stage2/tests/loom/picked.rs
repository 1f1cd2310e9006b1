//! Memory that begins as an image: a page that is copied when it is written, and goes back to the image's. Frame [`OLD`] is
//! the image's, and to be read only; frame [`NEW`] is the copy.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Level, Mapped, Permissions, Replacement};

use super::model::granted::ReplacesAny;
use super::model::{WHOLE, gfn, gfns, readable, writable};
use super::{BreakFirst, InPlace, NEW, OLD, Vcpu, check, vm};

/// A fault of page 5 that asks `host` for its frame: the image's may be read, and the copy written.
fn fault<F: mayfly_stage2::Format>(vcpu: &Vcpu<F>, host: &AtomicU64) -> Mapped {
    let seen = vcpu.vm.stage2.sample();
    let pfn = host.load(Ordering::Relaxed);
    let leaf = if pfn == NEW { writable(pfn) } else { readable(pfn) };
    vcpu.map(5, Level::PAGE, &leaf, seen)
}

/// Whether page 5 is mapped to `pfn`, with the rights that go with that; or is not mapped.
fn assert_is_or_absent<F: mayfly_stage2::Format>(vcpu: &Vcpu<F>, pfn: u64) {
    if let Some((_, leaf)) = vcpu.translate(5) {
        assert_eq!(leaf.pfn.get(), pfn);
        assert!(pfn == NEW || !leaf.permissions.contains(Permissions::WRITE), "{leaf:?}");
    }
}

/// The copy of a page as its memory makes it, beside a fault of another vCPU.
fn copy_beside<F: mayfly_stage2::Format>(is_present: bool) {
    let (vm, root) = vm::<F>(2);
    let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
    let host = Arc::new(AtomicU64::new(OLD));
    here.map_page(if is_present { 5 } else { 6 }, &readable(OLD));
    let other = {
        let host = Arc::clone(&host);
        there.in_thread(move |vcpu| fault(vcpu, &host))
    };
    {
        let announced = vm.stage2.begin_invalidation(&gfns(5, 1));
        let (old, new) = (Pfn::new(OLD), Pfn::new(NEW));
        let with = Replacement { old, new, same_contents: true };
        vm.stage2.replace_any(&announced, gfns(5, 1), WHOLE, |_| Some(with), |_| ());
        // No CPU has the image's page, and none can write to the copy.
        if let Some((_, leaf)) = here.translate(5) {
            assert_eq!((leaf.pfn, leaf.permissions), (new, readable(NEW).permissions));
        }
        host.store(NEW, Ordering::Relaxed);
        vm.stage2.allow_any_writes(&announced, gfn(5), new);
        assert_is_or_absent(&here, NEW);
    }
    other.join().unwrap();
    assert_is_or_absent(&here, NEW);
    drop((here, root));
    vm.end();
}

#[test]
fn a_page_that_is_copied_is_found_in_the_image_by_no_fault_that_asked_before() {
    for is_present in [true, false] {
        check(move || copy_beside::<InPlace>(is_present));
    }
}

#[test]
fn a_page_that_is_copied_by_way_of_an_absent_entry_is_not_found_in_the_image_either() {
    check(|| copy_beside::<BreakFirst>(true));
}

#[test]
fn a_page_that_goes_back_is_found_in_its_copy_by_no_fault_that_asked_before() {
    for is_present in [true, false] {
        check(move || {
            let (vm, root) = vm::<InPlace>(2);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            let host = Arc::new(AtomicU64::new(NEW));
            here.map_page(if is_present { 5 } else { 6 }, &writable(NEW));
            let other = {
                let host = Arc::clone(&host);
                there.in_thread(move |vcpu| fault(vcpu, &host))
            };
            {
                let announced = vm.stage2.begin_invalidation(&gfns(4, 2));
                vm.stage2
                    .zap_picked(&announced, gfns(4, 2), WHOLE, |page| page.max(gfn(5))..gfn(6));
                assert_eq!(here.translate(5), None, "the copy may be another's from now on");
                host.store(OLD, Ordering::Relaxed);
            }
            other.join().unwrap();
            assert_is_or_absent(&here, OLD);
            drop((here, root));
            vm.end();
        });
    }
}
