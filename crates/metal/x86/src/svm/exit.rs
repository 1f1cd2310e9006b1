//! Why a guest came out.

use super::vmcb::Control;

/// Why a guest came out (APM volume 2, appendix C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// An exception of this vector, with this error code.
    Exception(u8, u32),
    /// An interrupt of the machine's waits.
    Interrupt,
    /// A non-maskable interrupt of the machine's waits.
    Nmi,
    /// The guest takes interrupts now.
    Window,
    /// `CPUID`.
    Cpuid,
    /// CR4 is written.
    WriteCr4,
    /// `IRET`.
    Iret,
    /// `HLT`.
    Halt,
    /// `VMMCALL`.
    Call,
    /// `INVD` or `WBINVD`.
    Caches,
    /// A port.
    Port(Port),
    /// A string of ports.
    PortString,
    /// An MSR is read, or written.
    Msr {
        /// Whether it is written.
        write: bool,
    },
    /// `XSETBV`.
    SetXcr,
    /// `RDPMC`.
    CounterRead,
    /// An instruction that guests do not have here.
    Undefined,
    /// It has shut its CPU down: a triple fault.
    Shutdown,
    /// It has touched what its nested tables do not allow.
    NestedFault(NestedFault),
    /// The CPU has refused to run it.
    Invalid,
    /// Anything else, by its code.
    Other(u64),
}

/// An access to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Which one.
    pub port: u16,
    /// How many bytes: 1, 2 or 4.
    pub bytes: u8,
    /// Whether the guest writes.
    pub write: bool,
    /// The next instruction.
    pub next: u64,
}

/// An access that nested tables do not allow (15.25.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the error code")]
pub struct NestedFault {
    /// The guest physical address.
    pub address: u64,
    /// Whether there is an entry.
    pub present: bool,
    /// Whether it writes.
    pub write: bool,
    /// Whether it fetches an instruction.
    pub fetch: bool,
    /// Whether it was a walk of the guest's own tables.
    pub walk: bool,
}

impl From<&Control> for Exit {
    fn from(control: &Control) -> Self {
        let (info, other) = (control.exit_info_1, control.exit_info_2);
        match control.exit_code {
            0x14 => Self::WriteCr4,
            code @ 0x40..=0x5f => Self::Exception((code - 0x40) as u8, info as u32),
            0x60 => Self::Interrupt,
            0x61 => Self::Nmi,
            0x64 => Self::Window,
            0x72 => Self::Cpuid,
            0x74 => Self::Iret,
            0x76 | 0x89 => Self::Caches,
            0x78 => Self::Halt,
            // Bit 0 is IN, bit 2 a string; bits 6 to 4 say the size (15.10.2).
            0x7b if info & 0b100 != 0 => Self::PortString,
            0x7b => Self::Port(Port {
                port: (info >> 16) as u16,
                bytes: (info >> 4 & 7) as u8,
                write: info & 1 == 0,
                next: other,
            }),
            0x7c => Self::Msr { write: info & 1 != 0 },
            0x7f => Self::Shutdown,
            0x81 => Self::Call,
            0x6f => Self::CounterRead,
            // INVLPGA, VMRUN, VMLOAD to SKINIT, MONITOR, MWAIT, and RDPRU.
            0x7a | 0x80 | 0x82..=0x86 | 0x8a..=0x8c | 0x8e => Self::Undefined,
            0x8d => Self::SetXcr,
            0x400 => Self::NestedFault(NestedFault {
                address: other,
                present: info & 1 != 0,
                write: info & 2 != 0,
                fetch: info & 0x10 != 0,
                walk: info >> 33 & 1 != 0,
            }),
            // -1, of which QEMU 7.2 writes the lower half alone.
            u64::MAX | 0xffff_ffff => Self::Invalid,
            code => Self::Other(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svm::vmcb::Vmcb;

    #[test]
    fn an_exit_is_what_its_code_and_its_information_say() {
        let exit = |code, info, other| {
            let mut control = Vmcb::reset(0, 0).control;
            (control.exit_code, control.exit_info_1, control.exit_info_2) = (code, info, other);
            Exit::from(&control)
        };
        assert_eq!(exit(0x72, 0, 0), Exit::Cpuid);
        assert_eq!(exit(0x14, 0, 0), Exit::WriteCr4);
        assert_eq!(exit(0x6f, 0, 0), Exit::CounterRead);
        let port = |write| Exit::Port(Port { port: 0x3f8, bytes: 1, write, next: 7 });
        assert_eq!(exit(0x7b, 0x3f8_0010, 7), port(true));
        assert_eq!(exit(0x7b, 0x3f8_0011, 7), port(false));
        assert_eq!(exit(0x7b, 0x3f8_0014, 7), Exit::PortString);
        let fault = |present, write, walk| {
            Exit::NestedFault(NestedFault { address: 0x5000, present, write, fetch: false, walk })
        };
        assert_eq!(exit(0x400, 0x1_0000_0006, 0x5000), fault(false, true, false));
        assert_eq!(exit(0x400, 0x2_0000_0007, 0x5000), fault(true, true, true));
        assert_eq!(exit(0x51, 0, 0), Exit::Exception(17, 0));
        assert_eq!(exit(0x7c, 1, 0), Exit::Msr { write: true });
        assert_eq!(exit(u64::MAX, 0, 0), Exit::Invalid);
        assert_eq!(exit(0xffff_ffff, 0, 0), Exit::Invalid);
        assert_eq!(exit(0x7d, 0, 0), Exit::Other(0x7d));
    }

    /// A guest that has SVM instructions of its own is refused each of them; and so are those of registers that it has not.
    #[test]
    fn each_instruction_that_cpuid_does_not_list_is_undefined() {
        for code in [0x80_u64, 0x82, 0x83, 0x84, 0x85, 0x86, 0x7a, 0x8a, 0x8b, 0x8c, 0x8e] {
            let mut control = Vmcb::reset(0, 0).control;
            control.exit_code = code;
            assert_eq!(Exit::from(&control), Exit::Undefined, "{code:#x}");
        }
    }
}
