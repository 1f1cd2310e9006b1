//! KVM's ioctls: their names, and what of their arguments matters (linux/kvm.h).

use std::collections::BTreeMap;

use crate::record::Object;

/// Which way a structure goes, as an ioctl's number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    None,
    Write,
    Read,
    Both,
}

/// Whose call it is, where two of them have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Any,
    Vm,
    Vcpu,
}

use Direction::{Both, None as Plain, Read, Write};
use Of::{Any, Vcpu, Vm};

/// The name of the call with this number, on what its descriptor stands for.
pub(crate) fn name(request: u64, on: &Object) -> String {
    let number = (request & 0xFF) as u8;
    let direction = [Plain, Write, Read, Both][(request >> 30 & 3) as usize];
    let of = if matches!(on, Object::Vcpu { .. }) { Vcpu } else { Vm };
    let known = NAMES.iter().find(|(known, way, whose, _)| {
        *known == number && *way == direction && (*whose == Any || *whose == of)
    });
    known.map_or_else(|| format!("KVM_{request:#x}"), |(.., name)| (*name).to_owned())
}

/// The name of the call to KVM with this number, as linux/kvm.h has it; `KVM_0x...` where it is not known. Whether it is
/// on a vCPU's descriptor or on another one tells apart two that have one number.
pub fn ioctl_name(request: u64, on_vcpu: bool) -> String {
    let on = if on_vcpu { Object::Vcpu { vm: 0, id: 0 } } else { Object::Vm { vm: 0 } };
    name(request, &on)
}

/// How many bytes of a call's structure are looked at; none where it has none that matters.
pub(crate) fn looked_at(name: &str) -> usize {
    match name {
        "KVM_SET_USER_MEMORY_REGION" | "KVM_SET_USER_MEMORY_REGION2" | "KVM_IRQFD" => 32,
        "KVM_IOEVENTFD" => 28,
        "KVM_ENABLE_CAP" | "KVM_SET_DEVICE_ATTR" => 24,
        "KVM_CREATE_DEVICE" => 12,
        "KVM_SET_GSI_ROUTING" => 4,
        "KVM_REGISTER_COALESCED_MMIO" | "KVM_UNREGISTER_COALESCED_MMIO" => 16,
        _ => 0,
    }
}

/// The arguments that matter: `structure` is what was read at `argument`, of the length that was asked for or shorter.
pub(crate) fn arguments(name: &str, argument: u64, structure: &[u8]) -> BTreeMap<String, u64> {
    let word = |at: usize| {
        structure.get(at..at + 4).map(|b| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])))
    };
    let long = |at: usize| Some(word(at)? | word(at + 4)? << 32);
    let named: &[(&str, Option<u64>)] = &match name {
        "KVM_SET_USER_MEMORY_REGION" | "KVM_SET_USER_MEMORY_REGION2" => vec![
            ("slot", word(0)),
            ("flags", word(4)),
            ("guest", long(8)),
            ("size", long(16)),
            ("memory", long(24)),
        ],
        "KVM_IOEVENTFD" => vec![
            ("datamatch", long(0)),
            ("address", long(8)),
            ("length", word(16)),
            ("eventfd", word(20)),
            ("flags", word(24)),
        ],
        "KVM_IRQFD" => vec![("eventfd", word(0)), ("gsi", word(4)), ("flags", word(8))],
        "KVM_ENABLE_CAP" => vec![("cap", word(0)), ("flags", word(4)), ("arg0", long(8))],
        "KVM_CREATE_DEVICE" => vec![("type", word(0)), ("flags", word(8))],
        "KVM_SET_DEVICE_ATTR" => vec![("group", word(4)), ("attr", long(8))],
        "KVM_SET_GSI_ROUTING" => vec![("routes", word(0))],
        "KVM_REGISTER_COALESCED_MMIO" | "KVM_UNREGISTER_COALESCED_MMIO" => {
            vec![("address", long(0)), ("size", word(8))]
        }
        "KVM_CREATE_VM" => vec![("type", Some(argument))],
        "KVM_SET_TSS_ADDR" => vec![("address", Some(argument))],
        "KVM_CREATE_VCPU" => vec![("id", Some(argument))],
        "KVM_CHECK_EXTENSION" => vec![("cap", Some(argument))],
        _ => vec![],
    };
    named.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?))).collect()
}

/// Number, direction, whose, name. The sizes, which differ between architectures, are left out.
#[rustfmt::skip]
const NAMES: &[(u8, Direction, Of, &str)] = &[
    (0x00, Plain, Any, "KVM_GET_API_VERSION"),
    (0x01, Plain, Any, "KVM_CREATE_VM"),
    (0x02, Both, Any, "KVM_GET_MSR_INDEX_LIST"),
    (0x03, Plain, Any, "KVM_CHECK_EXTENSION"),
    (0x04, Plain, Any, "KVM_GET_VCPU_MMAP_SIZE"),
    (0x05, Both, Any, "KVM_GET_SUPPORTED_CPUID"),
    (0x09, Both, Any, "KVM_GET_EMULATED_CPUID"),
    (0x0a, Both, Any, "KVM_GET_MSR_FEATURE_INDEX_LIST"),
    (0x41, Plain, Any, "KVM_CREATE_VCPU"),
    (0x42, Write, Any, "KVM_GET_DIRTY_LOG"),
    (0x44, Plain, Any, "KVM_SET_NR_MMU_PAGES"),
    (0x45, Plain, Any, "KVM_GET_NR_MMU_PAGES"),
    (0x46, Write, Any, "KVM_SET_USER_MEMORY_REGION"),
    (0x47, Plain, Any, "KVM_SET_TSS_ADDR"),
    (0x48, Write, Any, "KVM_SET_IDENTITY_MAP_ADDR"),
    (0x49, Write, Any, "KVM_SET_USER_MEMORY_REGION2"),
    (0x60, Plain, Any, "KVM_CREATE_IRQCHIP"),
    (0x61, Write, Any, "KVM_IRQ_LINE"),
    (0x62, Both, Any, "KVM_GET_IRQCHIP"),
    (0x63, Read, Any, "KVM_SET_IRQCHIP"),
    (0x64, Plain, Any, "KVM_CREATE_PIT"),
    (0x65, Both, Any, "KVM_GET_PIT"),
    (0x66, Read, Any, "KVM_SET_PIT"),
    (0x67, Both, Any, "KVM_IRQ_LINE_STATUS"),
    (0x67, Write, Any, "KVM_REGISTER_COALESCED_MMIO"),
    (0x68, Write, Any, "KVM_UNREGISTER_COALESCED_MMIO"),
    (0x6a, Write, Any, "KVM_SET_GSI_ROUTING"),
    (0x71, Plain, Any, "KVM_REINJECT_CONTROL"),
    (0x76, Write, Any, "KVM_IRQFD"),
    (0x77, Write, Any, "KVM_CREATE_PIT2"),
    (0x78, Plain, Any, "KVM_SET_BOOT_CPU_ID"),
    (0x79, Write, Any, "KVM_IOEVENTFD"),
    (0x7a, Write, Any, "KVM_XEN_HVM_CONFIG"),
    (0x7b, Write, Any, "KVM_SET_CLOCK"),
    (0x7c, Read, Any, "KVM_GET_CLOCK"),
    (0x80, Plain, Any, "KVM_RUN"),
    (0x81, Read, Any, "KVM_GET_REGS"),
    (0x82, Write, Any, "KVM_SET_REGS"),
    (0x83, Read, Any, "KVM_GET_SREGS"),
    (0x84, Write, Any, "KVM_SET_SREGS"),
    (0x85, Both, Any, "KVM_TRANSLATE"),
    (0x86, Write, Any, "KVM_INTERRUPT"),
    (0x88, Both, Any, "KVM_GET_MSRS"),
    (0x89, Write, Any, "KVM_SET_MSRS"),
    (0x8a, Write, Any, "KVM_SET_CPUID"),
    (0x8b, Write, Any, "KVM_SET_SIGNAL_MASK"),
    (0x8c, Read, Any, "KVM_GET_FPU"),
    (0x8d, Write, Any, "KVM_SET_FPU"),
    (0x8e, Read, Any, "KVM_GET_LAPIC"),
    (0x8f, Write, Any, "KVM_SET_LAPIC"),
    (0x90, Write, Any, "KVM_SET_CPUID2"),
    (0x91, Both, Any, "KVM_GET_CPUID2"),
    (0x92, Both, Any, "KVM_TPR_ACCESS_REPORTING"),
    (0x93, Write, Any, "KVM_SET_VAPIC_ADDR"),
    (0x98, Read, Any, "KVM_GET_MP_STATE"),
    (0x99, Write, Any, "KVM_SET_MP_STATE"),
    (0x9a, Plain, Any, "KVM_NMI"),
    (0x9b, Write, Any, "KVM_SET_GUEST_DEBUG"),
    (0x9c, Write, Any, "KVM_X86_SETUP_MCE"),
    (0x9d, Read, Any, "KVM_X86_GET_MCE_CAP_SUPPORTED"),
    (0x9e, Write, Any, "KVM_X86_SET_MCE"),
    (0x9f, Read, Vm, "KVM_GET_PIT2"),
    (0x9f, Read, Vcpu, "KVM_GET_VCPU_EVENTS"),
    (0xa0, Write, Vm, "KVM_SET_PIT2"),
    (0xa0, Write, Vcpu, "KVM_SET_VCPU_EVENTS"),
    (0xa1, Read, Any, "KVM_GET_DEBUGREGS"),
    (0xa2, Plain, Any, "KVM_SET_TSC_KHZ"),
    (0xa2, Write, Any, "KVM_SET_DEBUGREGS"),
    (0xa3, Plain, Any, "KVM_GET_TSC_KHZ"),
    (0xa3, Write, Any, "KVM_ENABLE_CAP"),
    (0xa4, Read, Any, "KVM_GET_XSAVE"),
    (0xa5, Write, Vcpu, "KVM_SET_XSAVE"),
    (0xa5, Write, Vm, "KVM_SIGNAL_MSI"),
    (0xa6, Read, Any, "KVM_GET_XCRS"),
    (0xa7, Write, Any, "KVM_SET_XCRS"),
    (0xaa, Write, Any, "KVM_DIRTY_TLB"),
    (0xab, Write, Vm, "KVM_ARM_SET_DEVICE_ADDR"),
    (0xab, Write, Vcpu, "KVM_GET_ONE_REG"),
    (0xac, Write, Any, "KVM_SET_ONE_REG"),
    (0xad, Plain, Any, "KVM_KVMCLOCK_CTRL"),
    (0xae, Write, Any, "KVM_ARM_VCPU_INIT"),
    (0xaf, Read, Any, "KVM_ARM_PREFERRED_TARGET"),
    (0xb0, Both, Any, "KVM_GET_REG_LIST"),
    (0xb2, Write, Any, "KVM_SET_PMU_EVENT_FILTER"),
    (0xb4, Read, Any, "KVM_ARM_MTE_COPY_TAGS"),
    (0xb7, Plain, Any, "KVM_SMI"),
    (0xba, Both, Any, "KVM_MEMORY_ENCRYPT_OP"),
    (0xbb, Read, Any, "KVM_MEMORY_ENCRYPT_REG_REGION"),
    (0xbc, Read, Any, "KVM_MEMORY_ENCRYPT_UNREG_REGION"),
    (0xbd, Write, Any, "KVM_HYPERV_EVENTFD"),
    (0xbe, Both, Any, "KVM_GET_NESTED_STATE"),
    (0xbf, Write, Any, "KVM_SET_NESTED_STATE"),
    (0xc0, Both, Any, "KVM_CLEAR_DIRTY_LOG"),
    (0xc1, Both, Any, "KVM_GET_SUPPORTED_HV_CPUID"),
    (0xc2, Write, Any, "KVM_ARM_VCPU_FINALIZE"),
    (0xc6, Write, Any, "KVM_X86_SET_MSR_FILTER"),
    (0xc7, Plain, Any, "KVM_RESET_DIRTY_RINGS"),
    (0xc8, Both, Any, "KVM_XEN_HVM_GET_ATTR"),
    (0xc9, Write, Any, "KVM_XEN_HVM_SET_ATTR"),
    (0xca, Both, Any, "KVM_XEN_VCPU_GET_ATTR"),
    (0xcb, Write, Any, "KVM_XEN_VCPU_SET_ATTR"),
    (0xcc, Read, Any, "KVM_GET_SREGS2"),
    (0xcd, Write, Any, "KVM_SET_SREGS2"),
    (0xce, Plain, Any, "KVM_GET_STATS_FD"),
    (0xcf, Read, Any, "KVM_GET_XSAVE2"),
    (0xd0, Write, Any, "KVM_XEN_HVM_EVTCHN_SEND"),
    (0xd2, Write, Any, "KVM_SET_MEMORY_ATTRIBUTES"),
    (0xd4, Both, Any, "KVM_CREATE_GUEST_MEMFD"),
    (0xd5, Both, Any, "KVM_PRE_FAULT_MEMORY"),
    (0xe0, Both, Any, "KVM_CREATE_DEVICE"),
    (0xe1, Write, Any, "KVM_SET_DEVICE_ATTR"),
    (0xe2, Write, Any, "KVM_GET_DEVICE_ATTR"),
    (0xe3, Write, Any, "KVM_HAS_DEVICE_ATTR"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number_and_direction_and_by_whose_they_are() {
        let vm = Object::Vm { vm: 0 };
        let vcpu = Object::Vcpu { vm: 0, id: 0 };
        for (request, on, expected) in [
            (0xAE01, &Object::Kvm, "KVM_CREATE_VM"),
            (0x4020_AE46, &vm, "KVM_SET_USER_MEMORY_REGION"),
            (0x4040_AE79, &vm, "KVM_IOEVENTFD"),
            (0xAE80, &vcpu, "KVM_RUN"),
            (0x4070_AEA0, &vm, "KVM_SET_PIT2"),
            (0x4040_AEA0, &vcpu, "KVM_SET_VCPU_EVENTS"),
            (0x4020_AEA5, &vm, "KVM_SIGNAL_MSI"),
            (0x5000_AEA5, &vcpu, "KVM_SET_XSAVE"),
            (0x4010_AE67, &vm, "KVM_REGISTER_COALESCED_MMIO"),
            (0xC008_AE67, &vm, "KVM_IRQ_LINE_STATUS"),
            (0xAEFF, &vm, "KVM_0xaeff"),
        ] {
            assert_eq!(name(request, on), expected, "{request:#x}");
        }
    }

    #[test]
    fn what_could_not_be_read_of_a_structure_is_left_out() {
        let mut region = Vec::new();
        region.extend(7u32.to_le_bytes());
        region.extend(1u32.to_le_bytes());
        region.extend(0x1000u64.to_le_bytes());
        region.extend((1u64 << 33).to_le_bytes());
        let whole = arguments("KVM_SET_USER_MEMORY_REGION", 0, &region);
        assert_eq!((whole["slot"], whole["size"], whole.get("memory")), (7, 1 << 33, None));
        assert_eq!(arguments("KVM_SET_USER_MEMORY_REGION", 0, &region[..6]).len(), 1);
        assert!(arguments("KVM_SET_USER_MEMORY_REGION", 0, &[]).is_empty());
        assert_eq!(arguments("KVM_CREATE_VCPU", 3, &[])["id"], 3);
    }
}
