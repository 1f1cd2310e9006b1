//! What a measurement on a KVM depends on, as the kernel's modules tell it.

use std::fs;
use std::path::Path;

/// The modules' parameters that decide whether a vCPU adds a memslot.
const PARAMETERS: [&str; 4] = ["avic", "ept", "flexpriority", "unrestricted_guest"];

/// What a reader of measurements on a KVM should know about it. `None` is "cannot be told from here".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// KVM's vendor modules, loaded or built in, with their parameters of which the next field is made, such as
    /// `kvm_amd avic=N`.
    pub modules: Option<String>,
    /// Whether the first vCPU of a VM with an in-kernel interrupt controller adds a memslot of KVM's own, and so waits
    /// for a grace period as [`crate::Vm::set_memory_region`] does.
    pub vcpu_adds_memslot: Option<bool>,
    /// Whether x86's KVM maps guests by its TDP MMU: two-dimensional paging, roots that are invalidated under
    /// `mmu_lock`. Where it does not, page tables are shadowed, or mapped by the code that shadows them, and times of
    /// faults and zaps are that code's.
    pub tdp_mmu: Option<bool>,
}

impl Facts {
    /// What this host's modules tell.
    pub fn of_host() -> Self {
        Self::read(Path::new("/sys/module"))
    }

    /// What the modules and parameters under `sys_module` (`/sys/module`) tell.
    pub fn read(sys_module: &Path) -> Self {
        let modules = modules(sys_module);
        // Built into the kernel, both of Intel's and AMD's are there, and which of them is in use cannot be seen.
        let vcpu_adds_memslot = match modules.as_slice() {
            [vendor] => vcpu_adds_memslot(vendor, |name| is_on(sys_module, vendor, name)),
            _ => None,
        };
        let described = |module: &String| {
            PARAMETERS.into_iter().fold(module.clone(), |text, name| {
                match parameter(sys_module, module, name) {
                    Some(value) => format!("{text} {name}={value}"),
                    None => text,
                }
            })
        };
        let described: Vec<String> = modules.iter().map(described).collect();
        let modules = (!described.is_empty()).then(|| described.join(", "));
        Self { modules, vcpu_adds_memslot, tdp_mmu: is_on(sys_module, "kvm", "tdp_mmu") }
    }
}

fn modules(sys_module: &Path) -> Vec<String> {
    let mut modules: Vec<String> = fs::read_dir(sys_module)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("kvm_"))
        .collect();
    modules.sort();
    modules
}

fn parameter(sys_module: &Path, module: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(sys_module.join(module).join("parameters").join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|value| !value.is_empty())
}

fn is_on(sys_module: &Path, module: &str, name: &str) -> Option<bool> {
    match parameter(sys_module, module, name)?.as_str() {
        "Y" | "1" => Some(true),
        "N" | "0" => Some(false),
        _ => None,
    }
}

fn vcpu_adds_memslot(vendor: &str, is_on: impl Fn(&str) -> Option<bool>) -> Option<bool> {
    match vendor {
        // vmx_vcpu_create(): the APIC access page where the CPU virtualises APIC accesses, and the real-mode identity
        // map where EPT is there without unrestricted guest.
        "kvm_intel" => {
            let restricted = is_on("unrestricted_guest").map(|unrestricted| !unrestricted);
            either(is_on("flexpriority"), both(is_on("ept"), restricted))
        }
        // avic_init_backing_page(): the APIC access page where AVIC is on.
        "kvm_amd" => is_on("avic"),
        // pvm_vcpu_create(): its virtual APIC is software alone.
        "kvm_pvm" => Some(false),
        _ => None,
    }
}

/// a or b, where one of them may be unknown.
fn either(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// a and b, where one of them may be unknown.
fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    either(a.map(|a| !a), b.map(|b| !b)).map(|neither| !neither)
}
