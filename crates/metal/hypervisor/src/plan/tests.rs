use std::vec;

use proptest::prelude::*;

use super::*;

fn module(at: u64, kind: ModuleKind, arguments: &str) -> Module {
    Module { region: at..at + 0x1000, kind, arguments: arguments.into() }
}

/// That of a VM with these parameters.
pub(crate) fn plan(parameters: &str) -> Plan {
    let arguments = format!("{parameters} --");
    Plan::new(&module(0, ModuleKind::Kernel, &arguments), 0).unwrap()
}

#[test]
fn all_memory_is_reserved_unless_the_vm_may_use_more_than_that() {
    assert_eq!(plan("memory=64M").reserved(), 64 << 20);
    assert_eq!(plan("memory=64M reserve=64M").reserved(), 64 << 20);
    assert_eq!(plan("memory=64M overcommit=yes").reserved(), 0);
    assert_eq!(plan("reserve=32M overcommit=yes memory=64M").reserved(), 32 << 20);
    assert_eq!(plan("reserve=31M overcommit=yes memory=64M").reserved(), 32 << 20);
    for wrong in [
        "memory=64M reserve=32M",
        "memory=64M reserve=66M overcommit=yes",
        "memory=64M overcommit=yes reserve=",
        "overcommit=perhaps",
        "reserve=1024G overcommit=yes",
    ] {
        let arguments = format!("{wrong} --");
        let refused = Plan::new(&module(0, ModuleKind::Kernel, &arguments), 0);
        assert!(refused.is_err(), "{wrong}");
    }
}

#[test]
fn a_vm_is_merged_within_a_group_if_it_may_have_less_than_all_of_its_memory() {
    let group = |parameters| plan(parameters).merge;
    assert_eq!(group("memory=64M overcommit=yes"), None);
    assert_eq!(group("merge=a memory=64M overcommit=yes").as_deref(), Some("a"));
    let most = "reserve=62M memory=64M overcommit=yes merge=web-1_b";
    assert_eq!(group(most).as_deref(), Some("web-1_b"));
    assert_eq!(group("merge=a overcommit=yes merge=no"), None);
    for wrong in [
        "merge=a",
        "merge=a memory=64M overcommit=yes reserve=64M",
        "merge= overcommit=yes",
        "merge overcommit=yes",
        "merge=a,b overcommit=yes",
        "merge=012345678901234567890123456789012 overcommit=yes",
    ] {
        let arguments = format!("{wrong} --");
        let refused = Plan::new(&module(0, ModuleKind::Kernel, &arguments), 0);
        assert!(refused.is_err_and(|why| why.contains("merge")), "{wrong}");
    }
}

#[test]
fn a_vm_with_a_card_can_be_frozen_and_its_forks_have_that_card() {
    let card = plan("net=lan mac=52:54:00:00:00:01");
    assert_eq!(card.has_no_forks(), None);
    assert!(plan("disk=part:data").has_no_forks().is_some());
    let fork = card.forked("fork", &[]).unwrap();
    assert_eq!(fork.card.mac("fork"), [0x52, 0x54, 0, 0, 0, 1]);
    let named = plan("net=lan name=web");
    let fork = named.forked("fork", &[]).unwrap().forked("child", &[]).unwrap();
    assert_eq!(fork.card.mac("child"), named.card.mac("web"), "that is in the name of the first");
    for other in ["net=uplink", "net=no", "mac=52:54:00:00:00:02"] {
        assert!(card.forked("fork", &[other.to_string()]).is_err(), "{other}");
    }
}

#[test]
fn the_name_of_a_vm_that_is_like_another_is_no_parameter() {
    let model = plan("name=web");
    for name in ["other", "web", "next", ""] {
        let parameters = ["vcpus=1".to_string(), format!("name={name}")];
        assert!(model.changed("next", &parameters, None).is_err(), "{name}");
        assert!(model.forked("next", &parameters).is_err(), "{name}");
    }
    assert_eq!(model.changed("next", &[], None).unwrap().name, "next");
    assert_eq!(model.forked("next", &[]).unwrap().name, "next");
}

#[test]
fn a_vm_has_an_its_or_an_hvc_if_it_asks_for_one_and_so_have_its_forks_and_no_others() {
    for name in ["its", "hvc"] {
        let has = |plan: &Plan| if name == "its" { plan.its } else { plan.hvc };
        let (yes, no) = (format!("{name}=yes"), format!("{name}=no"));
        assert!(!has(&plan("")) && !has(&plan(&no)) && has(&plan(&yes)));
        let wrong = module(0, ModuleKind::Kernel, &format!("{name}=2 --"));
        assert!(Plan::new(&wrong, 0).is_err());
        let with = plan(&yes);
        assert!(has(&with.forked("fork", &[]).unwrap()));
        assert!(with.forked("fork", &[no]).is_err());
        assert!(plan("").forked("fork", &[yes]).is_err());
    }
}

#[test]
fn a_ramdisk_is_the_vms_whose_kernel_is_below_it() {
    let modules = [
        module(0x1000, ModuleKind::Kernel, "vcpus=4 memory=1G name=web -- console=ttyAMA0 quiet"),
        module(0x3000, ModuleKind::Ramdisk, ""),
        module(0x5000, ModuleKind::Ramdisk, ""),
        module(0x7000, ModuleKind::Kernel, "console=ttyAMA0"),
        module(0x9000, ModuleKind::Ramdisk, ""),
    ];
    let (plans, wrong) = Plan::all(&modules);
    assert_eq!(wrong, Vec::<String>::new());
    let first = &plans[0];
    assert_eq!((first.name.as_str(), first.vcpus, first.memory), ("web", 4, 1 << 30));
    assert_eq!(first.arguments, "console=ttyAMA0 quiet");
    assert_eq!(first.ramdisks, [0x3000..0x4000, 0x5000..0x6000]);
    assert_eq!((plans[1].name.as_str(), plans[1].vcpus), ("vm1", 1));
    assert_eq!(plans[1].arguments, "console=ttyAMA0");
    assert_eq!(plans[1].ramdisks, vec![0x9000..0xa000]);
}

#[test]
fn what_cannot_be_is_named_and_the_others_are_there() {
    let modules = [
        module(0x1000, ModuleKind::Ramdisk, ""),
        module(0x3000, ModuleKind::Kernel, "vcpus=0 --"),
        module(0x5000, ModuleKind::Ramdisk, ""),
        module(0x7000, ModuleKind::Kernel, "memory=64M --"),
        module(0x9000, ModuleKind::Kernel, "name=vm0 --"),
    ];
    let (plans, wrong) = Plan::all(&modules);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].memory, 64 << 20);
    assert!(plans[0].ramdisks.is_empty());
    assert_eq!(wrong.len(), 4, "{wrong:?}");
}

#[test]
fn a_disk_is_of_whole_blocks_and_bounded() {
    let disk = |parameter: &str| {
        let mut plan = Plan::new(&module(0, ModuleKind::Kernel, ""), 0).unwrap();
        plan.set(parameter).map(|()| plan.disk)
    };
    assert_eq!(disk("name=a"), Ok(0));
    assert_eq!(disk("disk=0"), Ok(0));
    assert_eq!(disk("disk=64M"), Ok(64 << 20));
    assert_eq!(disk("disk=1M"), Ok(2 << 20));
    assert_eq!(disk("disk=1023G"), Ok(1023 << 30));
    for parameter in ["disk=", "disk=512", "disk=-1", "disk=1024G", "disk=99999999999999999999G"] {
        assert!(disk(parameter).is_err(), "{parameter}");
    }
}

#[test]
fn a_weight_and_a_cap_are_bounded() {
    let set = |parameter: &str| {
        let mut plan = Plan::new(&module(0, ModuleKind::Kernel, ""), 0).unwrap();
        plan.set(parameter).map(|()| (plan.weight, plan.cap))
    };
    assert_eq!(set("name=a"), Ok((100, None)));
    assert_eq!(set("weight=1"), Ok((1, None)));
    assert_eq!(set("weight=1000"), Ok((1000, None)));
    assert_eq!(set("cap=50"), Ok((100, Some(50))));
    assert_eq!(set("cap=0"), Ok((100, None)));
    for parameter in [
        "weight=",
        "weight=0",
        "weight=1001",
        "weight=-1",
        "cap=",
        "cap=-1",
        "cap=100001",
        "cap=50%",
    ] {
        assert!(set(parameter).is_err(), "{parameter}");
    }
}

proptest! {
    #[test]
    fn any_arguments_are_taken_or_refused(arguments in ".{0,64}") {
        let (plans, wrong) = Plan::all(&[module(0, ModuleKind::Kernel, &arguments)]);
        prop_assert_eq!(plans.len() + wrong.len(), 1);
        for plan in plans {
            prop_assert!((1..=MAX_VCPUS).contains(&plan.vcpus) && plan.memory >= LEAST_MEMORY);
        }
    }
}
