//! What is told about a host's KVM.

use std::fs;
use std::path::PathBuf;

use crate::common::kvm;
use mayfly_kvm::Facts;

#[test]
fn a_host_with_kvm_on_x86_names_its_modules() {
    let Some(_) = kvm() else { return };
    let facts = Facts::of_host();
    assert!(cfg!(not(target_arch = "x86_64")) || facts.modules.is_some());
    println!("{facts:?}");
}

#[test]
fn vmx_adds_a_memslot_at_vcpu_creation_unless_it_virtualises_no_apic_access() {
    let cases: [(&[Parameter], Option<bool>); 5] = [
        (&[("flexpriority", "Y")], Some(true)),
        (&[("flexpriority", "N"), ("ept", "Y"), ("unrestricted_guest", "Y")], Some(false)),
        (&[("flexpriority", "N"), ("ept", "Y"), ("unrestricted_guest", "N")], Some(true)),
        (&[("flexpriority", "N"), ("ept", "N")], Some(false)),
        (&[("flexpriority", "N")], None),
    ];
    for (index, (parameters, adds)) in cases.into_iter().enumerate() {
        let modules = Modules::new(&format!("vmx-{index}"));
        modules.load("kvm_intel", parameters);
        assert_eq!(Facts::read(&modules.0).vcpu_adds_memslot, adds, "{parameters:?}");
    }
}

#[test]
fn svm_adds_a_memslot_at_vcpu_creation_where_avic_is_on() {
    for (index, (avic, adds)) in
        [("Y", Some(true)), ("N", Some(false)), ("auto", None)].into_iter().enumerate()
    {
        let modules = Modules::new(&format!("svm-{index}"));
        modules.load("kvm_amd", &[("avic", avic)]);
        assert_eq!(Facts::read(&modules.0).vcpu_adds_memslot, adds, "avic={avic}");
    }
}

#[test]
fn with_no_vendor_module_or_with_two_nobody_can_tell() {
    let modules = Modules::new("vendors");
    let nothing = Facts { modules: None, vcpu_adds_memslot: None, tdp_mmu: None };
    assert_eq!(Facts::read(&modules.0), nothing);
    modules.load("kvm_intel", &[("flexpriority", "Y")]);
    modules.load("kvm_amd", &[("avic", "N")]);
    let two = Facts::read(&modules.0);
    assert_eq!(two.vcpu_adds_memslot, None);
    assert_eq!(two.modules.as_deref(), Some("kvm_amd avic=N, kvm_intel flexpriority=Y"));
}

#[test]
fn of_all_parameters_those_are_told_that_decide() {
    let modules = Modules::new("parameters");
    modules.load("kvm_pvm", &[("enable_mmio_caching", "Y"), ("ept", "")]);
    let facts =
        Facts { modules: Some("kvm_pvm".into()), vcpu_adds_memslot: Some(false), tdp_mmu: None };
    assert_eq!(Facts::read(&modules.0), facts);
}

#[test]
fn the_mmu_that_maps_guests_is_told_where_kvm_itself_says() {
    for (index, (says, tdp_mmu)) in
        [("Y", Some(true)), ("N", Some(false)), ("?", None)].into_iter().enumerate()
    {
        let modules = Modules::new(&format!("mmu-{index}"));
        modules.load("kvm_intel", &[("flexpriority", "Y")]);
        modules.load("kvm", &[("tdp_mmu", says)]);
        let facts = Facts::read(&modules.0);
        assert_eq!(facts.tdp_mmu, tdp_mmu, "tdp_mmu={says}");
        assert_eq!(facts.modules.as_deref(), Some("kvm_intel flexpriority=Y"));
    }
}

/// A module's parameter: its name and its value.
type Parameter<'a> = (&'a str, &'a str);

/// A directory that looks like /sys/module, removed when dropped.
struct Modules(PathBuf);

impl Modules {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mayfly-kvm-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn load(&self, module: &str, parameters: &[Parameter]) {
        let directory = self.0.join(module).join("parameters");
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in parameters {
            fs::write(directory.join(name), format!("{value}\n")).unwrap();
        }
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
