//! Faults while the host changes memory: what is in their way, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use mayfly_memslot::PAGE_SIZE;
use mayfly_platform::Op;
use mayfly_stage2::Level;
use mayfly_vm::{CacheCapabilities, Caches, Config, InstructionCaches, Reason, SlotZap, Vm};

use crate::common::{
    Outcome, Over, Setup, TestVcpu, TestVm, hva, read, region, translation, until, write,
};

const MIB2: u64 = 0x200;
const GIB1: u64 = 0x4_0000;

/// Two regions so far apart are not told apart when an invalidation has ended.
const ALIKE: u64 = 64 * MIB2;

/// A VM with 2 GiB from 1 GiB on, behind which the host has blocks of `level`, and a vCPU.
fn create(caches: Caches, level: Level) -> (Setup, TestVm, TestVcpu) {
    let setup = Setup::new(SlotZap::Range);
    setup.caches.set_capabilities(CacheCapabilities {
        instructions: InstructionCaches::Coherent,
        ..CacheCapabilities::default()
    });
    setup.memory.set_level(level);
    let vm = Vm::create(Config { caches, ..setup.config() }).unwrap();
    vm.set_memory_region(&region(0, GIB1, 2 * GIB1)).unwrap();
    let vcpu = vm.create_vcpu(0).unwrap();
    (setup, vm, vcpu)
}

/// The host changes page `page` of the VM's memory.
fn change(vm: &TestVm, page: u64) {
    drop(vm.invalidate_start(hva(0, page * PAGE_SIZE), PAGE_SIZE, Reason::Migrate));
}

fn refused(setup: &Setup) -> usize {
    setup.hardware.charged(Op::FaultRefused)
}

/// The host changes a page elsewhere each time that so many frames have been cleaned: as often as one that changes many
/// a second.
#[test]
fn a_fault_that_cleans_is_mapped_whatever_the_host_changes_elsewhere() {
    let page = 3;
    for caches in [Caches::Tracked, Caches::Reported] {
        for (elsewhere, level, cleaned, tries) in
            [(5 * MIB2, Level::MIB2, MIB2, 1), (page + ALIKE, Level::PAGE, MIB2 + 1, 2)]
        {
            let (setup, vm, mut vcpu) = create(caches, Level::GIB1);
            let (changing, mut frames) = (vm.clone(), 0);
            setup.caches.at_each_clean(move |count| {
                frames += count;
                while frames >= 32 {
                    change(&changing, elsewhere);
                    frames -= 32;
                }
            });
            let gfn = GIB1 + page;
            assert!(matches!(read(&mut vcpu, gfn * PAGE_SIZE, 1), Outcome::Memory(_)));
            setup.caches.at_each_clean(|_| ());
            assert_eq!(translation(&mut vcpu, gfn).map(|(level, _)| level), Some(level));
            let counted: u64 = setup.caches.take_cleaned().iter().map(|&(_, count)| count).sum();
            assert_eq!((counted, refused(&setup) + 1), (cleaned, tries), "{elsewhere:#x}");
        }
    }
}

#[test]
fn no_fault_is_refused_by_what_the_host_changes_in_other_words() {
    let (setup, vm, mut vcpu) = create(Caches::Coherent, Level::PAGE);
    let (over, changes) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            let _over = Over(&over);
            while !over.load(Ordering::Relaxed) {
                for region in [1, 7, 63, 65, 127] {
                    change(&vm, region * MIB2);
                }
                changes.store(true, Ordering::Relaxed);
            }
        });
        for round in 0..20 {
            changes.store(false, Ordering::Relaxed);
            until(&over, || changes.load(Ordering::Relaxed));
            for page in (0..MIB2).chain(ALIKE..ALIKE + MIB2) {
                let outcome = write(&mut vcpu, (GIB1 + page) * PAGE_SIZE, &[1]);
                assert!(matches!(outcome, Outcome::Memory(_)), "{round}");
            }
            for page in [0, ALIKE] {
                let bytes = MIB2 * PAGE_SIZE;
                drop(vm.invalidate_start(hva(0, page * PAGE_SIZE), bytes, Reason::Migrate));
            }
        }
    });
    assert_eq!(refused(&setup), 0);
}

/// What the smaller block has nothing to do with is not waited for.
#[test]
fn a_fault_that_is_refused_goes_on_with_a_smaller_block() {
    for (host, level) in [(Level::GIB1, Level::MIB2), (Level::MIB2, Level::PAGE)] {
        let (setup, vm, mut vcpu) = create(Caches::Coherent, host);
        let elsewhere = host.pages() - 1;
        let changed = hva(0, elsewhere * PAGE_SIZE);
        let open = vm.invalidate_start(changed, PAGE_SIZE, Reason::Migrate);
        assert!(matches!(read(&mut vcpu, GIB1 * PAGE_SIZE, 1), Outcome::Memory(_)));
        assert_eq!(refused(&setup), 1);
        assert_eq!(setup.memory.take_asked().len(), 2, "the host was asked again");
        assert_eq!(translation(&mut vcpu, GIB1).map(|(level, _)| level), Some(level));
        drop(open);
        // The next one tries again.
        let other = GIB1 + host.pages();
        if host == Level::MIB2 {
            read(&mut vcpu, other * PAGE_SIZE, 1);
            assert_eq!(translation(&mut vcpu, other).map(|(level, _)| level), Some(host));
        }
    }
}
