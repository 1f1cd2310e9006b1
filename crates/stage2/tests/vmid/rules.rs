use std::collections::HashSet;

use mayfly_platform::Host;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{AllVmidsActive, VmidTag, Vmids, VmidsError};

use super::{Forgotten, world};

fn roots<const N: usize>() -> [VmidTag; N] {
    std::array::from_fn(|_| VmidTag::new())
}

#[test]
fn vmids_have_1_to_16_bits() {
    let with = |bits| Vmids::try_new(world::mmu(Host::new(), || ()), bits).map(|_| ());
    assert_eq!([1, 16].map(with), [Ok(()); 2]);
    assert_eq!([0, 17].map(with), [0, 17].map(|bits| Err(VmidsError::Bits { bits })));
}

#[test]
fn every_number_but_0_is_given_out_once_before_any_is_forgotten() {
    let forgotten = Forgotten::default();
    let vmids = forgotten.vmids(8);
    let mut vcpu = vmids.register().unwrap();
    let roots = roots::<255>();
    let given: HashSet<_> = roots.iter().map(|root| vcpu.activate(root).unwrap()).collect();
    assert_eq!(given, (1..=255).map(Vmid).collect());
    assert_eq!((forgotten.count(), vmids.rollovers()), (0, 0));
}

#[test]
fn a_root_keeps_its_number_within_a_generation() {
    let vmids = Forgotten::default().vmids(8);
    let [mut one, mut other] = [(); 2].map(|()| vmids.register().unwrap());
    let [root, another] = roots();
    let number = one.activate(&root).unwrap();
    assert_eq!(other.activate(&root), Ok(number));
    assert_ne!(one.activate(&another), Ok(number));
    assert_eq!(one.activate(&root), Ok(number));
    assert_eq!(vmids.assigned(&root), Some(number));
}

#[test]
fn a_roll_over_forgets_once_and_takes_numbers_from_all_but_running_vcpus() {
    let forgotten = Forgotten::default();
    let vmids = forgotten.vmids(2);
    let [mut running, mut vcpu] = [(); 2].map(|()| vmids.register().unwrap());
    let roots = roots::<6>();
    let kept = running.activate(&roots[0]).unwrap();
    for root in &roots[1..4] {
        assert_ne!(vcpu.activate(root), Ok(kept));
    }
    assert_eq!((forgotten.count(), vmids.rollovers()), (1, 1));
    assert_eq!(vmids.assigned(&roots[0]), Some(kept));
    assert_eq!(vmids.assigned(&roots[1]), None);
    assert_eq!(vmids.assigned(&roots[2]), None);
    assert!(vmids.assigned(&roots[3]).is_some());
    assert_eq!(running.activate(&roots[0]), Ok(kept));
    assert_eq!(forgotten.count(), 1);
}

#[test]
fn a_number_is_kept_for_a_vcpu_that_never_exits_and_for_those_that_join_it_in_any_generation() {
    let forgotten = Forgotten::default();
    let vmids = forgotten.vmids(2);
    let [mut running, mut joining, mut vcpu] = [(); 3].map(|()| vmids.register().unwrap());
    let root = VmidTag::new();
    let kept = running.activate(&root).unwrap();
    for generation in 0..20 {
        while vmids.rollovers() <= generation {
            assert_ne!(vcpu.activate(&VmidTag::new()), Ok(kept));
        }
        assert_eq!(vmids.assigned(&root), Some(kept));
        if generation % 3 == 0 {
            assert_eq!(joining.activate(&root), Ok(kept));
            joining.deactivate();
        }
    }
}

#[test]
fn a_root_whose_number_another_has_kept_since_gets_a_new_one() {
    let vmids = Forgotten::default().vmids(1);
    let [mut one, mut other] = [(); 2].map(|()| vmids.register().unwrap());
    let [early, late] = roots();
    one.activate(&early).unwrap();
    one.deactivate();
    other.activate(&late).unwrap();
    assert_eq!(one.activate(&early), Err(AllVmidsActive));
    assert_eq!(vmids.assigned(&early), None);
    assert_eq!(vmids.assigned(&late), Some(Vmid(1)));
}

#[test]
fn with_a_vcpu_running_under_every_number_the_next_is_refused_and_nothing_is_forgotten() {
    let forgotten = Forgotten::default();
    let vmids = forgotten.vmids(2);
    let mut vcpus = [(); 4].map(|()| vmids.register().unwrap());
    let roots = roots::<4>();
    for (vcpu, root) in vcpus.iter_mut().zip(&roots).take(3) {
        vcpu.activate(root).unwrap();
    }
    assert_eq!(vcpus[3].activate(&roots[3]), Err(AllVmidsActive));
    assert_eq!(forgotten.count(), 0);
    let freed = vmids.assigned(&roots[1]).unwrap();
    vcpus[1].deactivate();
    assert_eq!(vcpus[3].activate(&roots[3]), Ok(freed));
    assert_eq!(forgotten.count(), 1);
}

#[test]
fn a_vcpu_that_changes_roots_needs_no_second_number_to_do_so() {
    let vmids = Forgotten::default().vmids(1);
    let mut vcpu = vmids.register().unwrap();
    for root in &roots::<3>() {
        assert_eq!(vcpu.activate(root), Ok(Vmid(1)));
    }
    assert_eq!(vmids.rollovers(), 2);
}

#[test]
fn a_retired_roots_number_is_free_at_once_also_where_it_was_kept() {
    let forgotten = Forgotten::default();
    let vmids = forgotten.vmids(2);
    let [mut running, mut vcpu] = [(); 2].map(|()| vmids.register().unwrap());
    for _ in 0..10 {
        let root = VmidTag::new();
        vcpu.activate(&root).unwrap();
        vcpu.deactivate();
        vmids.retire(&root);
        assert_eq!(vmids.assigned(&root), None);
    }
    assert_eq!(forgotten.count(), 0);

    let [root, ..] = roots::<1>();
    let kept = running.activate(&root).unwrap();
    while vmids.rollovers() == 0 {
        vcpu.activate(&VmidTag::new()).unwrap();
    }
    running.deactivate();
    vmids.retire(&root);
    assert_eq!(vcpu.activate(&VmidTag::new()), Ok(kept));
}

#[test]
fn retiring_a_root_that_lost_its_number_leaves_it_to_who_has_it_now() {
    let vmids = Forgotten::default().vmids(1);
    let mut vcpu = vmids.register().unwrap();
    let [old, new, newest] = roots();
    vcpu.activate(&old).unwrap();
    vcpu.activate(&new).unwrap();
    vmids.retire(&old);
    assert_eq!(vmids.assigned(&new), Some(Vmid(1)));
    vcpu.activate(&newest).unwrap();
    assert_eq!(vmids.rollovers(), 2, "the number was taken, not free");
}

#[test]
fn a_vcpu_that_is_gone_keeps_no_number_and_leaves_its_place_to_the_next() {
    let vmids = Forgotten::default().vmids(1);
    let [old, new] = roots();
    for root in [&old, &new] {
        let mut vcpu = vmids.register().unwrap();
        assert_eq!(vcpu.activate(root), Ok(Vmid(1)));
    }
    let _again = vmids.register().unwrap();
    let mut vcpu = vmids.register().unwrap();
    assert_eq!(vcpu.activate(&old), Ok(Vmid(1)));
    assert_eq!(vmids.assigned(&new), None);
}

#[test]
fn a_root_that_was_never_entered_has_nothing_to_invalidate() {
    let vmids = Forgotten::default().vmids(8);
    assert_eq!(vmids.assigned(&VmidTag::new()), None);
    vmids.retire(&VmidTag::new());
    assert_eq!(vmids.register().unwrap().activate(&VmidTag::new()), Ok(Vmid(1)));
}
