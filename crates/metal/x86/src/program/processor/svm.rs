//! SVM, turned on.

use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use core::cell::UnsafeCell;

use mayfly_x86::svm::features::Features;
use mayfly_x86::svm::vmcb::SVME;
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::model_specific::{Efer, EferFlags, Msr};
use x86_64::registers::xcontrol::XCr0;

const VM_CR: u32 = 0xc001_0114;
const VM_HSAVE_PA: u32 = 0xc001_0117;
const IA32_XSS: u32 = 0xda0;
/// `VM_CR.SVMDIS` (APM volume 2, 15.30.1).
const SVM_DISABLED: u64 = 1 << 4;

/// A page that the CPU alone reads and writes.
#[repr(C, align(4096))]
pub(crate) struct CpuPage(UnsafeCell<[u8; 4096]>);

// SAFETY: nothing but its address is ever taken.
unsafe impl Sync for CpuPage {}

impl CpuPage {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new([0; 4096]))
    }

    pub(crate) fn address(&'static self) -> u64 {
        self.0.get().expose_provenance() as u64
    }
}

/// Where VMRUN keeps the host's state (15.30.4).
static HOST_STATE: CpuPage = CpuPage::new();

/// Why no guest can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lacking {
    #[error("this CPU has no SVM: no guest can run")]
    Svm,
    #[error("without nested paging no guest can run")]
    NestedPaging,
    #[error("the firmware has disabled SVM (VM_CR.SVMDIS): no guest can run")]
    Disabled,
    #[error("this CPU has {0} ASIDs: no guest can run")]
    Asids(u32),
}

/// An extended leaf of CPUID, of zeros if the CPU has none of that number.
fn extended_leaf(leaf: u32) -> CpuidResult {
    if __cpuid(0x8000_0000).eax < leaf {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    __cpuid(leaf)
}

/// What the CPU has of SVM.
///
/// # Errors
///
/// What it lacks.
pub(crate) fn features() -> Result<Features, Lacking> {
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

/// Turns SVM on, with what guests need of the host.
///
/// # Errors
///
/// What is lacking.
pub(crate) fn enable(features: Features) -> Result<(), Lacking> {
    if !features.has_nested_paging() {
        return Err(Lacking::NestedPaging);
    }
    // One for the host, and two for guests: the core gives out numbers of whole bits.
    if features.asids() < 4 {
        return Err(Lacking::Asids(features.asids()));
    }
    narrow();
    // SAFETY: the CPU has SVM, and with it these MSRs. The page is the CPU's from here on: it is a static of which nothing
    // else is made. Long mode has no-execute and FXSAVE.
    unsafe {
        if Msr::new(VM_CR).read() & SVM_DISABLED != 0 {
            return Err(Lacking::Disabled);
        }
        let flags = EferFlags::from_bits_retain(SVME) | EferFlags::NO_EXECUTE_ENABLE;
        Efer::write_raw(Efer::read_raw() | flags.bits());
        Msr::new(VM_HSAVE_PA).write(HOST_STATE.address());
        // FXSAVE has the SSE registers only so.
        Cr4::update(|flags| *flags |= Cr4Flags::OSFXSR);
    }
    Ok(())
}
