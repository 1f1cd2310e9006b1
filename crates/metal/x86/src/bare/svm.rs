//! SVM, turned on.

use core::arch::x86_64::{__cpuid, __cpuid_count};

use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::model_specific::{Efer, EferFlags, Msr};
use x86_64::registers::xcontrol::XCr0;

use super::cpu::{block, extended_leaf};
use crate::svm::features::Features;
use crate::svm::vmcb::SVME;

const VM_CR: u32 = 0xc001_0114;
const VM_HSAVE_PA: u32 = 0xc001_0117;
const IA32_XSS: u32 = 0xda0;
/// `VM_CR.SVMDIS` (APM volume 2, 15.30.1).
const SVM_DISABLED: u64 = 1 << 4;

/// Why no guest can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// It has no SVM.
    #[error("this CPU has no SVM: no guest can run")]
    Svm,
    /// It has no nested paging.
    #[error("without nested paging no guest can run")]
    NestedPaging,
    /// The firmware has turned it off.
    #[error("the firmware has disabled SVM (VM_CR.SVMDIS): no guest can run")]
    Disabled,
    /// It has too few ASIDs.
    #[error("this CPU has {0} ASIDs: no guest can run")]
    Asids(u32),
}

/// What the CPU has of SVM.
///
/// # Errors
///
/// What it lacks.
pub fn features() -> Result<Features, Lacking> {
    let (said, extended) = (extended_leaf(0x8000_000a), extended_leaf(0x8000_0001));
    Features::new(extended.ecx, said.eax, said.ebx, said.edx).ok_or(Lacking::Svm)
}

/// Turns off what XSAVE has beyond x87, so that no guest reaches more than its own XCR0 says, whatever ran before. XSAVE itself
/// stays on: what vCPUs have in turn is saved by it.
fn narrow() {
    let features = __cpuid(1).ecx;
    if features >> 26 & 1 == 0 {
        return;
    }
    // SAFETY: the CPU has XSAVE, and these registers with it; nothing here uses what they turn off. x87 is always on.
    unsafe {
        Cr4::update(|flags| *flags |= Cr4Flags::OSXSAVE);
        XCr0::write_raw(1);
        if __cpuid_count(0xd, 1).eax >> 3 & 1 != 0 {
            Msr::new(IA32_XSS).write(0);
        }
    }
}

/// Turns SVM on in this processor, with what guests need of the host.
///
/// # Errors
///
/// What is lacking.
pub fn enable(features: Features) -> Result<(), Lacking> {
    if !features.has_nested_paging() {
        return Err(Lacking::NestedPaging);
    }
    // One for the host, and two for guests: the core gives out numbers of whole bits.
    if features.asids() < 4 {
        return Err(Lacking::Asids(features.asids()));
    }
    narrow();
    // SAFETY: the CPU has SVM, and with it these MSRs. The page is the CPU's from here on. Long mode has no-execute and FXSAVE.
    unsafe {
        if Msr::new(VM_CR).read() & SVM_DISABLED != 0 {
            return Err(Lacking::Disabled);
        }
        let flags = EferFlags::from_bits_retain(SVME) | EferFlags::NO_EXECUTE_ENABLE;
        Efer::write_raw(Efer::read_raw() | flags.bits());
        Msr::new(VM_HSAVE_PA).write(block().host_state.address());
        // FXSAVE has the SSE registers only so.
        Cr4::update(|flags| *flags |= Cr4Flags::OSFXSR);
    }
    Ok(())
}
