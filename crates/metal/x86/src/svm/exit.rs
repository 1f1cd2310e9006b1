//! Why a guest came out (APM volume 2, appendix C), as far as this program has it come out.

use crate::svm::vmcb::Control;

/// Why a guest came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `CPUID`.
    Cpuid,
    /// `HLT`.
    Halt,
    /// `VMMCALL`.
    Call,
    /// `OUT`, without a string, to a port.
    Out {
        /// Which port.
        port: u16,
        /// How many bytes: 1, 2 or 4.
        bytes: u8,
        /// The next instruction.
        next: u64,
    },
    /// It has touched what its nested tables do not map.
    NestedFault {
        /// The guest physical address.
        address: u64,
        /// Whether it has written.
        write: bool,
    },
    /// Anything else, by its code.
    Other(u64),
}

impl From<&Control> for Exit {
    fn from(control: &Control) -> Self {
        let (info, other) = (control.exit_info_1, control.exit_info_2);
        match control.exit_code {
            0x72 => Self::Cpuid,
            0x78 => Self::Halt,
            0x81 => Self::Call,
            // Bit 0 is IN, bit 2 a string; bits 6 to 4 say the size (15.10.2).
            0x7b if info & 0b101 == 0 => {
                Self::Out { port: (info >> 16) as u16, bytes: (info >> 4 & 7) as u8, next: other }
            }
            0x400 => Self::NestedFault { address: other, write: info & 2 != 0 },
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
            let mut control = Vmcb::real(0, 0, 0, 0).control;
            (control.exit_code, control.exit_info_1, control.exit_info_2) = (code, info, other);
            Exit::from(&control)
        };
        assert_eq!(exit(0x72, 0, 0), Exit::Cpuid);
        assert_eq!(exit(0x7b, 0x3f8_0010, 7), Exit::Out { port: 0x3f8, bytes: 1, next: 7 });
        assert_eq!(exit(0x7b, 0x3f8_0011, 7), Exit::Other(0x7b));
        assert_eq!(exit(0x7b, 0x3f8_0014, 7), Exit::Other(0x7b));
        let fault = |write| Exit::NestedFault { address: 0x5000, write };
        assert_eq!(exit(0x400, 0x1_0000_0006, 0x5000), fault(true));
        assert_eq!(exit(0x400, 0x1_0000_0004, 0x5000), fault(false));
        assert_eq!(exit(u64::MAX, 0, 0), Exit::Other(u64::MAX));
    }
}
