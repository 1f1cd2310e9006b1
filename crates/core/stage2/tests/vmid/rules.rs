use std::collections::HashSet;

use mayfly_platform::Host;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{VmidTag, Vmids, VmidsError};

use super::{Asked, Cpu, world};

fn roots<const N: usize>(vmids: &Vmids) -> [VmidTag; N] {
    std::array::from_fn(|_| vmids.tag().unwrap())
}

fn cpus<const N: usize>(vmids: &Vmids) -> [Cpu; N] {
    std::array::from_fn(|number| Cpu::new(number as u32, vmids))
}

/// As the reclaimer does it.
fn retire(vmids: &Vmids, root: &VmidTag) {
    leave(vmids, root);
    retire_left(vmids, root);
}

fn leave(vmids: &Vmids, root: &VmidTag) {
    // SAFETY: no CPU keeps a translation.
    unsafe { vmids.leave(root) };
}

fn retire_left(vmids: &Vmids, root: &VmidTag) {
    // SAFETY: as above.
    unsafe { vmids.retire(root) };
}

fn try_new(cpus: u32, bits: u32) -> Result<(), VmidsError> {
    // SAFETY: the only ones of this machine, which has no CPU.
    unsafe { Vmids::try_new(world::mmu(Host::new(), cpus, Asked::default()), bits) }.map(|_| ())
}

#[test]
fn vmids_have_1_to_16_bits() {
    assert_eq!([1, 16].map(|bits| try_new(1, bits)), [Ok(()); 2]);
    let refused = [0, 17].map(|bits| Err(VmidsError::Bits { bits }));
    assert_eq!([0, 17].map(|bits| try_new(1, bits)), refused);
}

#[test]
fn more_cpus_than_vmids_are_refused_when_there_is_nothing_to_lose_yet() {
    for bits in [1, 2, 8, 16] {
        let most = (1 << bits) - 1;
        assert_eq!(try_new(most, bits), Ok(()));
        assert_eq!(try_new(most + 1, bits), Err(VmidsError::Cpus { cpus: most + 1, bits }));
    }
}

#[test]
fn every_number_but_0_is_given_out_once_before_any_is_forgotten() {
    for bits in [8, 16] {
        let asked = Asked::default();
        let vmids = asked.vmids(bits, 1);
        let [cpu] = cpus(&vmids);
        let last = u16::MAX >> (16 - bits);
        let roots: Vec<_> = (1..=last).map(|_| vmids.tag().unwrap()).collect();
        let given: HashSet<_> = roots.iter().map(|root| cpu.run(root)).collect();
        assert_eq!(given, (1..=last).map(Vmid).collect());
        assert_eq!((asked.forgotten(), vmids.rollovers()), (0, 0));
        cpu.run(&vmids.tag().unwrap());
        assert_eq!((asked.forgotten(), vmids.rollovers()), (1, 1));
    }
}

#[test]
fn a_root_keeps_its_number_within_a_generation() {
    let vmids = Asked::default().vmids(8, 2);
    let [one, other] = cpus(&vmids);
    let [root, another] = roots(&vmids);
    let number = one.run(&root);
    assert_eq!(other.run(&root), number);
    assert_ne!(one.run(&another), number);
    assert_eq!(one.run(&root), number);
    assert_eq!(vmids.assigned(&root), Some(number));
}

#[test]
fn a_roll_over_forgets_once_and_leaves_numbers_with_the_roots_that_cpus_name() {
    let asked = Asked::default();
    let vmids = asked.vmids(2, 2);
    let [idle, cpu] = cpus(&vmids);
    let roots = roots::<6>(&vmids);
    // It does not run there any more, but nothing else does.
    let kept = idle.run(&roots[0]);
    for root in &roots[1..4] {
        assert_ne!(cpu.run(root), kept);
    }
    assert_eq!((asked.forgotten(), vmids.rollovers()), (1, 1));
    assert_eq!(vmids.assigned(&roots[0]), Some(kept));
    assert_eq!(vmids.assigned(&roots[1]), None);
    assert_eq!(vmids.assigned(&roots[2]), None);
    assert!(vmids.assigned(&roots[3]).is_some());
    assert_eq!(idle.run(&roots[0]), kept);
    assert_eq!(asked.forgotten(), 1);
}

#[test]
fn a_number_is_kept_for_a_cpu_that_is_never_left_and_for_those_that_join_it_in_any_generation() {
    let vmids = Asked::default().vmids(2, 3);
    let [running, joining, cpu] = cpus(&vmids);
    let [root, elsewhere] = roots(&vmids);
    let kept = running.run(&root);
    for generation in 0..20 {
        while vmids.rollovers() <= generation {
            assert_ne!(cpu.run(&vmids.tag().unwrap()), kept);
        }
        assert_eq!(vmids.assigned(&root), Some(kept));
        if generation % 3 == 0 {
            assert_eq!(joining.run(&root), kept);
            joining.run(&elsewhere);
        }
    }
}

#[test]
fn a_root_whose_number_another_has_kept_since_gets_a_new_one() {
    let vmids = Asked::default().vmids(2, 2);
    let [one, other] = cpus(&vmids);
    let [early, late] = roots(&vmids);
    let number = one.run(&early);
    for root in &roots::<2>(&vmids) {
        one.run(root);
    }
    assert_eq!((other.run(&late), vmids.rollovers()), (number, 1));
    while vmids.rollovers() == 1 {
        one.run(&vmids.tag().unwrap());
    }
    assert_eq!(vmids.assigned(&early), None);
    assert_eq!(vmids.assigned(&late), Some(number));
    assert_ne!(one.run(&early), number);
    assert_eq!(vmids.assigned(&late), Some(number));
}

#[test]
fn as_many_cpus_as_numbers_are_always_served() {
    let asked = Asked::default();
    let vmids = asked.vmids(2, 3);
    let cpus = cpus::<3>(&vmids);
    let roots = roots::<5>(&vmids);
    for round in 0..20 {
        let on: Vec<_> = (0..3).map(|cpu| &roots[(round * 2 + cpu) % 5]).collect();
        for (cpu, root) in cpus.iter().zip(&on) {
            cpu.run(root);
        }
        let numbers: HashSet<_> = on.iter().map(|root| vmids.assigned(root).unwrap()).collect();
        assert_eq!(numbers.len(), 3, "one each");
    }
    assert!(asked.forgotten() > 10);
}

#[test]
fn a_cpu_that_changes_roots_needs_no_second_number_to_do_so_and_vacates_the_first() {
    let asked = Asked::default();
    let vmids = asked.vmids(1, 1);
    let [cpu] = cpus(&vmids);
    for root in &roots::<3>(&vmids) {
        assert_eq!([cpu.run(root), cpu.run(root)], [Vmid(1); 2]);
    }
    assert_eq!(vmids.rollovers(), 2);
    assert_eq!(asked.take_vacated(), [(0, Vmid(1)); 2]);
}

#[test]
fn a_retired_roots_number_is_free_at_once_also_where_it_was_kept() {
    let asked = Asked::default();
    let vmids = asked.vmids(2, 2);
    let [running, cpu] = cpus(&vmids);
    for _ in 0..10 {
        let root = vmids.tag().unwrap();
        cpu.run(&root);
        retire(&vmids, &root);
        assert_eq!(vmids.assigned(&root), None);
    }
    assert_eq!(asked.forgotten(), 0);

    let root = vmids.tag().unwrap();
    let kept = running.run(&root);
    while vmids.rollovers() == 0 {
        cpu.run(&vmids.tag().unwrap());
    }
    retire(&vmids, &root);
    assert_eq!(cpu.run(&vmids.tag().unwrap()), kept);
}

#[test]
fn a_root_is_taken_from_every_cpu_that_names_it_and_from_no_other_before_it_is_retired() {
    let asked = Asked::default();
    let vmids = asked.vmids(8, 4);
    let cpus = cpus::<4>(&vmids);
    let [old, other, new] = roots(&vmids);
    let number = cpus[0].run(&old);
    cpus[1].run(&other);
    cpus[2].run(&old);
    cpus[3].run(&old);
    cpus[3].run(&other);
    assert_eq!(asked.take_vacated(), [(3, number)]);
    leave(&vmids, &old);
    assert_eq!(asked.take_vacated(), [(0, number), (2, number)]);
    leave(&vmids, &old);
    assert_eq!(asked.take_vacated(), [], "once");
    retire_left(&vmids, &old);
    // What comes next under the number is told from it.
    assert_eq!(cpus[3].run(&new), number);
    leave(&vmids, &old);
    assert_eq!(cpus[0].run(&new), number);
    let named = vmids.assigned(&other).unwrap();
    assert_eq!(asked.take_vacated(), [(3, named)]);
}

#[test]
fn all_cpus_that_name_a_root_which_is_retired_are_asked_at_once() {
    let asked = Asked::default();
    let vmids = asked.vmids(8, 4);
    let cpus = cpus::<4>(&vmids);
    let [old, other] = roots(&vmids);
    let number = cpus[0].run(&old);
    cpus[1].run(&other);
    cpus[2].run(&old);
    cpus[3].run(&old);
    leave(&vmids, &old);
    assert_eq!(asked.take_at_once(), [3]);
    assert_eq!(asked.take_vacated(), [0, 2, 3].map(|cpu| (cpu, number)));
}

#[test]
fn a_root_that_lost_its_number_is_taken_from_nobody() {
    let asked = Asked::default();
    let vmids = asked.vmids(1, 1);
    let [cpu] = cpus(&vmids);
    let [old, new, newest] = roots(&vmids);
    cpu.run(&old);
    cpu.run(&new);
    asked.take_vacated();
    retire(&vmids, &old);
    assert_eq!(asked.take_vacated(), []);
    assert_eq!(vmids.assigned(&new), Some(Vmid(1)));
    cpu.run(&newest);
    assert_eq!(vmids.rollovers(), 2, "the number was taken, not free");
}

#[test]
fn a_root_that_was_never_entered_has_nothing_to_invalidate() {
    let vmids = Asked::default().vmids(8, 1);
    let [root, other] = roots(&vmids);
    assert_eq!(vmids.assigned(&root), None);
    retire(&vmids, &root);
    let [cpu] = cpus(&vmids);
    assert_eq!(cpu.run(&other), Vmid(1));
}

#[test]
fn a_vcpu_that_comes_where_another_of_its_root_was_last_flushes_also_after_a_third() {
    let vmids = Asked::default().vmids(8, 2);
    let [a, b] = roots(&vmids);
    let [a0, a1, b0] = [(); 3].map(|()| vmids.vcpu());
    // SAFETY: no CPU keeps a translation.
    let flush = |root: &VmidTag, cpu, vcpu| unsafe { root.activate(cpu, vcpu) }.flush;
    assert!(!flush(&a, 0, a0), "nobody was there");
    assert!(!flush(&a, 0, a0));
    assert!(!flush(&b, 0, b0), "of another root");
    assert!(flush(&a, 0, a1), "what a0 left is there still");
    assert!(!flush(&a, 0, a1));
    assert!(!flush(&a, 1, a0), "not on that CPU");
    assert!(flush(&a, 0, a0));
    assert!(!flush(&b, 0, b0));
}
