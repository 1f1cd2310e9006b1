//! Processors on which an invalidation is complete too early, until another one is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mayfly_hwtrace::{Options, Rule};
use mayfly_machine::tlb::InGuest;
use mayfly_machine::{Checked, Instruction, LeftOut, Machine, Processors};
use mayfly_memslot::{Gpa, PAGE_SIZE, SlotId};
use mayfly_stage2::{Arm, Permissions};
use mayfly_vm::Exit;

type Format = Arm<40>;

const GPA: Gpa = Gpa::new(0x1000);

/// How many milliseconds a CPU does not look into its mailbox, where its host is expected to wait for it; and where not,
/// at most: on whatever machine.
const BUSY: [u32; 2] = [50, 60_000];

/// A CPU uses a page, and looks into its mailbox no more until its host has unmapped the page, or for so long. Returns
/// whether the host was done before the CPU had looked, whether it finds the page then, and what the checker says.
fn unmaps(completes_early: bool, left_out: LeftOut, busy: u32) -> (bool, bool, Vec<Rule>) {
    let processors = Processors { completes_early, ..Processors::default() };
    let machine = Machine::<Format>::with_processors(1 << 12, processors).unwrap();
    let (checked, sink) = Checked::new(Options::default());
    machine.hardware().record(sink);
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), GPA)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut cpu = machine.cpu(vec![Instruction::Touch { gpa: GPA, len: 1, value: 7 }]);
    assert_eq!(vcpu.run(&mut cpu), Exit::Halt);
    let (top, vmid) = cpu.named().unwrap();

    let hardware = machine.hardware().clone();
    let mut cpu = hardware.tlbs().cpu();
    let mut guest = cpu.enter_guest(top, vmid);
    let find = |guest: &mut InGuest<'_>| {
        guest.translate::<Format>(hardware.arena(), GPA.gfn(), Permissions::READ).is_ok()
    };
    assert!(find(&mut guest));
    hardware.tlbs().leave_out(left_out);
    let has_looked = AtomicBool::new(false);
    let (early, finds) = thread::scope(|scope| {
        let (space, range, has_looked) = (machine.space(), memory.hvas(), &has_looked);
        let host = scope.spawn(move || {
            space.munmap(range).unwrap();
            !has_looked.load(Ordering::SeqCst)
        });
        for _ in 0..busy {
            if host.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let finds = host.is_finished() && find(&mut guest);
        has_looked.store(true, Ordering::SeqCst);
        while !host.is_finished() {
            guest.poll();
            thread::yield_now();
        }
        (host.join().unwrap(), finds || find(&mut guest))
    });
    hardware.tlbs().leave_out(LeftOut::Nothing);
    drop(guest);
    drop((cpu, hardware, vcpu));
    vm.destroy();
    drop((memory, machine));
    let mut rules: Vec<_> = checked.finish().into_iter().map(|broken| broken.rule).collect();
    rules.dedup();
    (early, finds, rules)
}

#[test]
fn without_another_invalidation_memory_is_freed_that_a_guest_uses() {
    let [waits, goes_on] = BUSY;
    assert_eq!(unmaps(true, LeftOut::Nothing, waits), (false, false, vec![]));
    assert_eq!(unmaps(false, LeftOut::Repeat, waits), (false, false, vec![]));
    let (early, finds, rules) = unmaps(true, LeftOut::Repeat, goes_on);
    assert!(early && finds, "the host waits for the guest all the same");
    assert_eq!(rules, [Rule::FrameFreed]);
}
