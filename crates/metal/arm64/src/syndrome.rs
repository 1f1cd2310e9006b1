//! Why a guest exited: `ESR_EL2`, decoded (DDI 0487, at that register, "ISS encoding for ...").
//!
//! Every number has an answer, and none panics. An unknown class is [`Trap::Undefined`], since a guest can reach it
//! only by an instruction that its ID registers do not offer.

use mayfly_vm::memslot::{Gpa, PAGE_SIZE};
use mayfly_vm::{Access, AccessKind};

use crate::sysreg::SysReg;

/// The class of an instruction of pointer authentication, by a vCPU that has not used the keys.
pub const AUTHENTICATION: u8 = 0x09;

/// Why a guest came out, by a synchronous exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// `WFI`, or `WFIT`.
    WaitForInterrupt,
    /// `WFE`, or `WFET`.
    WaitForEvent,
    /// `HVC`. The guest goes on behind it.
    Hypercall,
    /// `SMC`. The guest goes on at it.
    SecureCall,
    /// `MRS`, `MSR`, or a system instruction.
    System(SystemAccess),
    /// An access to memory, or a fetch.
    Abort(Abort),
    /// What the guest does not have: it gets what the architecture has for that, an exception of class 0.
    Undefined {
        /// `ESR_EL2.EC`.
        class: u8,
    },
}

/// An access to a system register that is trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemAccess {
    /// Which one.
    pub register: SysReg,
    /// The general register beside, 0 to 30; 31 is zero.
    pub rt: u8,
    /// `MSR`, or an instruction without a result.
    pub write: bool,
}

/// What an access failed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no entry.
    Translation,
    /// The entry has its access flag clear.
    AccessFlag,
    /// The entry does not allow it.
    Permission,
    /// An address has more bits than there are.
    AddressSize,
    /// An exclusive or atomic access to memory that has none (`FSC` 0x35), or the implementation's own.
    Unsupported,
    /// Something else: an external abort, a TLB conflict.
    Other,
}

/// A transfer between a register and memory, as far as hardware describes it (`ISV`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The general register, 0 to 30; 31 is zero.
    pub rt: u8,
    /// 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// What is loaded is extended by its sign.
    pub signed: bool,
    /// To 64 bits, and not to 32.
    pub wide: bool,
}

impl Transfer {
    /// The bytes that a register's value is stored as; `reversed` where the guest's data are big-endian
    /// ([`is_big_endian`]).
    pub fn store(self, value: u64, reversed: bool) -> [u8; 8] {
        self.ordered(value.to_le_bytes(), reversed)
    }

    fn ordered(self, mut bytes: [u8; 8], reversed: bool) -> [u8; 8] {
        if reversed {
            bytes[..usize::from(self.bytes.min(8))].reverse();
        }
        bytes
    }

    /// The register's value, when these bytes were loaded.
    pub fn load(self, bytes: [u8; 8], reversed: bool) -> u64 {
        let bytes = self.ordered(bytes, reversed);
        let unused = 64 - 8 * u32::from(self.bytes.clamp(1, 8));
        let raw = u64::from_le_bytes(bytes) << unused;
        let value =
            if self.signed { (raw.cast_signed() >> unused).cast_unsigned() } else { raw >> unused };
        if self.wide { value } else { value & u64::from(u32::MAX) }
    }
}

/// Whether the data of a guest with this PSTATE and `SCTLR_EL1` are big-endian.
pub const fn is_big_endian(pstate: u64, sctlr: u64) -> bool {
    // PSTATE.nRW, and E of AArch32; SCTLR_EL1.E0E and EE.
    if bit(pstate, 4) {
        bit(pstate, 9)
    } else if field(pstate, 2, 2) == 0 {
        bit(sctlr, 24)
    } else {
        bit(sctlr, 25)
    }
}

/// An access that stage 2 did not allow, or that failed by itself.
#[expect(clippy::struct_excessive_bools, reason = "bits of the syndrome, each by itself")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// A fetch, and no load or store.
    pub fetch: bool,
    /// As `WnR`; of a walk of the guest's own tables it says nothing.
    pub write: bool,
    /// A walk of the guest's own tables (`S1PTW`).
    pub walk: bool,
    /// Maintenance of caches (`CM`), which sets `WnR` whatever it does.
    pub maintenance: bool,
    /// Why.
    pub fault: Fault,
    /// Of a load or store of one register, which.
    pub transfer: Option<Transfer>,
    /// `FAR_EL2` does not hold the address (`FnV`).
    pub address_unknown: bool,
}

impl Abort {
    /// Whether it was stage 2 that did not allow it, so that the core is asked.
    pub const fn is_stage2(&self) -> bool {
        matches!(self.fault, Fault::Translation | Fault::AccessFlag | Fault::Permission)
    }

    /// Whether `HPFAR_EL2` holds the page: it does but for permission faults that no walk made ("the `HPFAR_EL2`" at
    /// "Stage 2 fault on a stage 1 translation table walk").
    pub const fn page_is_known(&self) -> bool {
        self.walk || !matches!(self.fault, Fault::Permission)
    }

    /// As the core is told it; `gpa` is where it was.
    ///
    /// An access that hardware describes at the first bytes of a page may be the rest of one that began in the page
    /// before. Nothing says so, and it is taken for one that begins there.
    pub fn access(&self, gpa: Gpa) -> Access {
        let denied = matches!(self.fault, Fault::Permission);
        if self.fetch && !self.walk {
            return Access { gpa, len: 4, write: false, kind: AccessKind::Fetch, denied };
        }
        if self.walk {
            // A permission fault is the update of a flag in the guest's table; otherwise it is read.
            return Access { gpa, len: 8, write: denied, kind: AccessKind::Walk, denied };
        }
        match self.transfer {
            Some(transfer) if !self.maintenance => {
                let len = u64::from(transfer.bytes);
                let straddles = gpa.page_offset() + len > PAGE_SIZE;
                let kind = if straddles { AccessKind::Opaque } else { AccessKind::Data };
                Access { gpa, len, write: self.write, kind, denied }
            }
            // Cleaning reads, as far as rights are concerned; `DC ZVA` has CM clear. `DC IVAC` alone is denied where
            // nothing may be written (DDI 0487, "Permission fault"): what it asks for is the right to write.
            _ => {
                let write = self.write && (!self.maintenance || denied);
                Access { gpa, len: 1, write, kind: AccessKind::Opaque, denied }
            }
        }
    }
}

const fn bit(value: u64, number: u32) -> bool {
    value >> number & 1 == 1
}

const fn field(value: u64, shift: u32, bits: u32) -> u8 {
    (value >> shift & ((1 << bits) - 1)) as u8
}

/// Reads `ESR_EL2`.
pub fn decode(esr: u64) -> Trap {
    match field(esr, 26, 6) {
        // TI: 0 WFI, 1 WFE, 2 WFIT, 3 WFET.
        0x01 if bit(esr, 0) => Trap::WaitForEvent,
        0x01 => Trap::WaitForInterrupt,
        0x16 => Trap::Hypercall,
        0x17 => Trap::SecureCall,
        0x18 => {
            let (op0, op1) = (field(esr, 20, 2), field(esr, 14, 3));
            let (crn, crm, op2) = (field(esr, 10, 4), field(esr, 1, 4), field(esr, 17, 3));
            let register = SysReg::new(op0, op1, crn, crm, op2);
            Trap::System(SystemAccess { register, rt: field(esr, 5, 5), write: !bit(esr, 0) })
        }
        0x20 => Trap::Abort(abort(esr, true)),
        0x24 => Trap::Abort(abort(esr, false)),
        class => Trap::Undefined { class },
    }
}

fn abort(esr: u64, fetch: bool) -> Abort {
    let fault = match field(esr, 0, 6) {
        0x00..=0x03 | 0x29 | 0x2c => Fault::AddressSize,
        0x04..=0x07 | 0x2a | 0x2b => Fault::Translation,
        0x08..=0x0b => Fault::AccessFlag,
        0x0c..=0x0f => Fault::Permission,
        0x34 | 0x35 => Fault::Unsupported,
        _ => Fault::Other,
    };
    let maintenance = !fetch && bit(esr, 8);
    let transfer = (!fetch && bit(esr, 24)).then(|| Transfer {
        rt: field(esr, 16, 5),
        bytes: 1 << field(esr, 22, 2),
        signed: bit(esr, 21),
        wide: bit(esr, 15),
    });
    Abort {
        fetch,
        write: !fetch && bit(esr, 6),
        walk: bit(esr, 7),
        maintenance,
        fault,
        transfer,
        address_unknown: bit(esr, 10),
    }
}

#[cfg(test)]
mod tests {
    use mayfly_vm::stage2::Permissions;
    use proptest::prelude::*;

    use super::*;
    use crate::sysreg;

    const DATA_ABORT: u64 = 0x24 << 26 | 1 << 25;

    #[test]
    fn a_load_of_a_device_register_is_described() {
        // LDRSB w3, [x0]: one byte, signed, to 32 bits.
        let esr = DATA_ABORT | 1 << 24 | 1 << 21 | 3 << 16 | 0x06;
        let Trap::Abort(abort) = decode(esr) else { panic!() };
        let transfer = abort.transfer.unwrap();
        assert_eq!(transfer, Transfer { rt: 3, bytes: 1, signed: true, wide: false });
        assert_eq!(
            abort.access(Gpa::new(0x900_0018)),
            Access::data(Gpa::new(0x900_0018), 1, false)
        );
        assert_eq!(transfer.load([0x80, 0xff, 0, 0, 0, 0, 0, 0], false), 0xffff_ff80);
    }

    #[test]
    fn a_guest_whose_data_are_big_endian_stores_the_first_byte_last() {
        let half = Transfer { rt: 0, bytes: 2, signed: true, wide: true };
        assert_eq!(half.store(0x1234, true), [0x12, 0x34, 0, 0, 0, 0, 0, 0]);
        assert_eq!(half.load([0x80, 0x01, 0, 0, 0, 0, 0, 0], true), 0xffff_ffff_ffff_8001);
        let word = Transfer { bytes: 4, ..half };
        assert_eq!(word.load([0x11, 0, 0, 0, 0, 0, 0, 0], true), 0x1100_0000);
        let (e0e, ee, at_el1, aarch32) = (1 << 24, 1 << 25, 1 << 2, 1 << 4);
        assert!(is_big_endian(0, e0e) && !is_big_endian(0, ee));
        assert!(is_big_endian(at_el1, ee) && !is_big_endian(at_el1, e0e));
        assert!(is_big_endian(aarch32 | 1 << 9, 0) && !is_big_endian(aarch32, e0e | ee));
    }

    #[test]
    fn a_store_that_hardware_does_not_describe_is_memorys_alone() {
        let Trap::Abort(abort) = decode(DATA_ABORT | 1 << 6 | 0x07) else { panic!() };
        let access = abort.access(Gpa::new(0x1000));
        assert_eq!((access.kind, access.write), (AccessKind::Opaque, true));
    }

    #[test]
    fn maintenance_of_caches_reads_and_writes_where_it_is_denied() {
        const MAINTENANCE: u64 = DATA_ABORT | 1 << 8 | 1 << 6;
        let wanted = |fault: u64| {
            let Trap::Abort(abort) = decode(MAINTENANCE | fault) else { panic!() };
            abort.access(Gpa::new(0)).wanted()
        };
        assert_eq!(wanted(0x07), Permissions::READ);
        assert_eq!(wanted(0x0f), Permissions::WRITE);
    }

    #[test]
    fn a_walk_writes_where_it_is_denied_and_reads_where_there_is_nothing() {
        let Trap::Abort(absent) = decode(DATA_ABORT | 1 << 7 | 0x05) else { panic!() };
        let Trap::Abort(denied) = decode(DATA_ABORT | 1 << 7 | 0x0d) else { panic!() };
        assert!(!absent.access(Gpa::new(0)).write);
        assert!(denied.access(Gpa::new(0)).write);
        assert!(denied.page_is_known(), "HPFAR_EL2 is valid for walks");
    }

    #[test]
    fn the_page_of_a_permission_fault_has_to_be_looked_for() {
        let Trap::Abort(abort) = decode(DATA_ABORT | 1 << 6 | 0x0f) else { panic!() };
        assert!(!abort.page_is_known());
    }

    #[test]
    fn a_write_of_sgi1r_is_known_by_its_numbers() {
        // MSR ICC_SGI1R_EL1, x5.
        let esr = 0x18 << 26 | 3 << 20 | 5 << 17 | 12 << 10 | 5 << 5 | 11 << 1;
        let expected = SystemAccess { register: sysreg::ICC_SGI1R_EL1, rt: 5, write: true };
        assert_eq!(decode(esr), Trap::System(expected));
    }

    #[test]
    fn a_class_that_nobody_knows_is_undefined() {
        for class in [0x00, 0x03, 0x07, AUTHENTICATION, 0x0e, 0x12, 0x19, 0x1e, 0x2f, 0x3c, 0x3f] {
            assert_eq!(decode(u64::from(class) << 26), Trap::Undefined { class });
        }
    }

    proptest! {
        #[test]
        fn every_class_has_an_answer_whatever_else_its_syndrome_says(class in 0_u8..64, iss in 0_u64..1 << 26, iss2: u16) {
            let trap = decode(u64::from(iss2) << 32 | u64::from(class) << 26 | iss);
            let is_answered = match class {
                0x01 => matches!(trap, Trap::WaitForInterrupt | Trap::WaitForEvent),
                0x16 => trap == Trap::Hypercall,
                0x17 => trap == Trap::SecureCall,
                0x18 => matches!(trap, Trap::System(_)),
                0x20 => matches!(trap, Trap::Abort(Abort { fetch: true, transfer: None, write: false, .. })),
                0x24 => matches!(trap, Trap::Abort(Abort { fetch: false, .. })),
                _ => trap == Trap::Undefined { class },
            };
            prop_assert!(is_answered, "{:?}", trap);
        }

        #[test]
        fn no_syndrome_has_decoding_panic_and_no_access_leaves_its_page(esr: u64, gpa: u64) {
            if let Trap::Abort(abort) = decode(esr) {
                let access = abort.access(Gpa::new(gpa));
                prop_assert!((1..=8).contains(&access.len));
                if access.kind == AccessKind::Data {
                    prop_assert!(access.gpa.page_offset() + access.len <= PAGE_SIZE);
                    prop_assert!(abort.transfer.is_some());
                }
            }
        }

        #[test]
        fn what_is_stored_is_loaded_again(value: u64, size in 0_u32..4, wide: bool) {
            let bytes = 1_u8 << size;
            let transfer = Transfer { rt: 0, bytes, signed: false, wide };
            let mask = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
            let mask = if wide { mask } else { mask & 0xffff_ffff };
            for reversed in [false, true] {
                prop_assert_eq!(transfer.load(transfer.store(value, reversed), reversed), value & mask);
            }
        }

        #[test]
        fn a_register_is_made_of_its_numbers(op0 in 0_u8..4, op1 in 0_u8..8, crn in 0_u8..16, crm in 0_u8..16, op2 in 0_u8..8) {
            let register = SysReg::new(op0, op1, crn, crm, op2);
            let numbers = (register.op0(), register.op1(), register.crn(), register.crm(), register.op2());
            prop_assert_eq!(numbers, (op0, op1, crn, crm, op2));
        }
    }
}
