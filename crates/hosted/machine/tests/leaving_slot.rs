//! Host memory that goes while the slot that it was behind is going.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, yield_now};

use mayfly_machine::{CpuTlb, Machine, VmOptions};
use mayfly_memslot::{Gfn, Gpa, Region, SlotId};
use mayfly_stage2::{Ept, Permissions};
use mayfly_vm::{Access, Event, Exit, Guest, Requests, SlotZap, Translation};

use mayfly_platform::testing::threads::{Over, until};

const GPA: Gpa = Gpa::new(0x1000);

/// Reads a page, and stays in the guest from then on, whatever it is asked, until it may go, or the page is gone.
struct Staying<'a> {
    machine: &'a Machine,
    tlb: CpuTlb,
    has_read: &'a AtomicBool,
    looks: &'a AtomicU64,
    may_go: &'a AtomicBool,
    lost_it: bool,
}

impl Guest<Ept> for Staying<'_> {
    fn enter(&mut self, translation: Translation<Ept>, _: &Requests) -> Event {
        let arena = self.machine.hardware().arena();
        let mut guest = self.tlb.enter::<Ept>(arena, &translation);
        while !self.may_go.load(Ordering::Acquire) {
            guest.poll();
            let found = guest.translate::<Ept>(arena, GPA.gfn(), Permissions::READ).is_ok();
            if found {
                self.has_read.store(true, Ordering::Release);
            } else if self.has_read.load(Ordering::Acquire) {
                self.lost_it = true;
            } else {
                return Event::Access(Access::data(GPA, 8, false));
            }
            self.looks.fetch_add(1, Ordering::Release);
            yield_now();
        }
        Event::Halt
    }

    fn cpu(&self) -> u32 {
        self.tlb.number()
    }

    fn forget(&mut self, gfn: Gfn) {
        self.tlb.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

#[test]
fn memory_that_is_unmapped_while_its_slot_is_being_deleted_is_used_no_more() {
    let machine = Machine::new().unwrap();
    let options = VmOptions { slot_zap: SlotZap::AllRoots, ..VmOptions::default() };
    let vm = machine.create_vm_with(options).unwrap();
    let memory = machine.map(0x1000).unwrap();
    let region = memory.region(SlotId::main(0), GPA);
    vm.set_memory_region(&region).unwrap();
    let (has_read, may_go, looks) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let mut guest = Staying {
        tlb: machine.hardware().tlbs().cpu(),
        machine: &machine,
        has_read: &has_read,
        looks: &looks,
        may_go: &may_go,
        lost_it: false,
    };
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let exit = scope(|scope| {
        let running = scope.spawn(|| {
            let _over = Over(&may_go);
            vcpu.run(&mut guest)
        });
        // Also where something fails here, and the guest would be waited for.
        let _over = Over(&may_go);
        until(&may_go, || has_read.load(Ordering::Acquire));
        // The slot is gone as soon as nobody finds it; this returns when the vCPU has left the guest.
        let deleting = scope.spawn(|| vm.set_memory_region(&Region { size: 0, ..region }));
        let slots = vm.slots();
        until(&may_go, || slots.load(region.slot.space, &vm.srcu().read_lock()).is_empty());
        assert!(!deleting.is_finished());
        drop(memory);
        assert!(!deleting.is_finished());
        // The guest looks once more, from beginning to end.
        let seen = looks.load(Ordering::Acquire);
        until(&may_go, || looks.load(Ordering::Acquire) >= seen + 2);
        may_go.store(true, Ordering::Release);
        deleting.join().unwrap().unwrap();
        running.join().unwrap()
    });
    assert_eq!(exit, Exit::Halt);
    assert!(guest.lost_it, "its memory was somebody else's, and the guest went on with it");
}
