//! Into a guest, and out of it; and what of a processor VMRUN leaves as it is, which vCPUs have in turn.

use core::arch::asm;

use mayfly_x86::svm::vmcb::Vmcb;

use crate::bare::processor::svm::CpuPage;

/// Where VMSAVE keeps what of the host VMRUN leaves as it is.
static HOST_REST: CpuPage = CpuPage::new();

unsafe extern "C" {
    /// `switch.S`'s.
    fn enter_guest(vmcb: *mut Vmcb, registers: *mut [u64; 16], host: u64);
}

core::arch::global_asm!(include_str!("switch.S"), options(att_syntax));

/// Runs a guest until it comes out. Of the registers, those are its own that VMRUN does not move: all but RAX and RSP.
///
/// # Safety
///
/// The control block is one that the CPU takes, of tables and permission maps that last as long; the guest reaches no memory
/// by its tables that Rust has. SVM is on, and interrupts are masked.
pub(super) unsafe fn enter(vmcb: &mut Vmcb, registers: &mut [u64; 16]) {
    // SAFETY: addresses are physical ones here, and the caller says the rest. The host's registers are as they were when
    // this returns: VMRUN and VMLOAD bring back what the guest has, and the code moves the others.
    unsafe { enter_guest(vmcb, registers, HOST_REST.address()) }
}

/// What FXSAVE has. The program itself uses none of it.
#[repr(C, align(16))]
#[derive(Clone, Debug)]
struct Floating([u8; 512]);

/// What vCPUs have of the processor in turn: floating point and SSE, the addresses of breakpoints, and `TSC_AUX`.
#[derive(Clone, Debug)]
pub(super) struct Resident {
    floating: Floating,
    breakpoints: [u64; 4],
    pub(super) tsc_aux: u32,
    has_tsc_aux: bool,
}

/// Anything that FILD loads.
static ONE: i32 = 1;

const TSC_AUX: u32 = 0xc000_0103;

impl Resident {
    /// As after reset.
    pub(super) fn new(has_tsc_aux: bool) -> Self {
        let mut floating = Floating([0; 512]);
        floating.0[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        floating.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        Self { floating, breakpoints: [0; 4], tsc_aux: 0, has_tsc_aux }
    }

    /// Puts it into the processor.
    pub(super) fn take(&self) {
        let [zero, one, two, three] = self.breakpoints;
        // SAFETY: the program uses neither of these registers; breakpoints are off while it runs. What FXRSTOR takes was made
        // by FXSAVE, or above.
        unsafe {
            // AMD's FXRSTOR writes where the last x87 instruction was only if an exception of its is pending: what the vCPU
            // before has left there is overwritten first, by a load of the program's own.
            asm!("fnclex", "emms", "fild dword ptr [{}]", in(reg) &raw const ONE, options(nostack, readonly));
            asm!("fxrstor64 [{}]", in(reg) &raw const self.floating, options(nostack, readonly));
            asm!("mov dr0, {}", "mov dr1, {}", "mov dr2, {}", "mov dr3, {}",
                in(reg) zero, in(reg) one, in(reg) two, in(reg) three, options(nostack, nomem));
            if self.has_tsc_aux {
                x86_64::registers::model_specific::Msr::new(TSC_AUX).write(self.tsc_aux.into());
            }
        }
    }

    /// Takes it from the processor.
    pub(super) fn put(&mut self) {
        let (zero, one, two, three);
        // SAFETY: as above.
        unsafe {
            asm!("fxsave64 [{}]", in(reg) &raw mut self.floating, options(nostack));
            asm!("mov {}, dr0", "mov {}, dr1", "mov {}, dr2", "mov {}, dr3",
                out(reg) zero, out(reg) one, out(reg) two, out(reg) three, options(nostack, nomem));
        }
        self.breakpoints = [zero, one, two, three];
    }

    /// Writes `TSC_AUX`, while it is in the processor.
    pub(super) fn set_tsc_aux(&mut self, value: u32) {
        self.tsc_aux = value;
        if self.has_tsc_aux {
            // SAFETY: the CPU has it, and the program does not use it.
            unsafe { x86_64::registers::model_specific::Msr::new(TSC_AUX).write(value.into()) }
        }
    }
}
