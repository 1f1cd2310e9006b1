//! Into a guest, and out of it.

use mayfly_x86::svm::vmcb::Vmcb;

use super::cpu::CpuPage;

/// The general registers that VMRUN does not move: RAX and RSP, by their numbers, are not used.
#[repr(C)]
#[derive(Default)]
pub(super) struct Registers(pub(super) [u64; 16]);

/// Where VMSAVE keeps what of the host VMRUN leaves as it is.
static HOST_REST: CpuPage = CpuPage::new();

unsafe extern "C" {
    /// `switch.S`'s.
    fn enter_guest(vmcb: *mut Vmcb, registers: *mut Registers, host: u64);
}

core::arch::global_asm!(include_str!("switch.S"), options(att_syntax));

/// Runs a guest until it comes out.
///
/// # Safety
///
/// The control block is one that the CPU takes, of tables and permission maps that last as long; the guest reaches no memory
/// by its tables that Rust has. SVM is on.
pub(super) unsafe fn enter(vmcb: &mut Vmcb, registers: &mut Registers) {
    // SAFETY: addresses are physical ones here, and the caller says the rest. The host's registers are as they were when
    // this returns: VMRUN and VMLOAD bring back what the guest has, and the code moves the others.
    unsafe { enter_guest(vmcb, registers, HOST_REST.address()) }
}
