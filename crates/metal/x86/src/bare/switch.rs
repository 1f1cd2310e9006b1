//! Into a guest, and out of it; and what of a processor VMRUN leaves as it is, which vCPUs have in turn.

use core::arch::asm;
use core::cell::{Cell, UnsafeCell};

use x86_64::registers::xcontrol::XCr0;

use super::cpu::{block, extended_leaf, leaf};
use super::timer;
use crate::machine::xsave::{AREA_BYTES, MXCSR, MXCSR_AT, Xsave};
use crate::svm::vmcb::Vmcb;

unsafe extern "C" {
    /// `switch.S`'s.
    fn mayfly_x86_enter(vmcb: *mut Vmcb, registers: *mut [u64; 16], host: u64);
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
    unsafe { mayfly_x86_enter(vmcb, registers, block().host_rest.address()) }
}

/// What XSAVE has, or FXSAVE. The program itself uses none of it.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct Vectors([u8; AREA_BYTES]);

/// What vCPUs have of the processor in turn: floating point and vectors, XCR0, the addresses of breakpoints, and `TSC_AUX`.
/// One thread has it.
#[derive(Debug)]
pub struct Resident {
    vectors: UnsafeCell<Vectors>,
    /// The bits of XCR0 of which it has the state: with none, there is no XSAVE.
    saved: u64,
    xcr0: Cell<u64>,
    breakpoints: Cell<[u64; 4]>,
    tsc_aux: Cell<u32>,
    has_tsc_aux: bool,
    is_inside: Cell<bool>,
    /// When the vCPU is due by its APIC's timer, by the host's counter, as far as was known when it came out last.
    due: Cell<u64>,
}

/// Anything that FILD loads.
static ONE: i32 = 1;

const TSC_AUX: u32 = 0xc000_0103;

impl Resident {
    /// As after reset.
    pub fn new() -> Self {
        let xsave = Xsave::reset(leaf);
        // A header that says of no part that it is there: XRSTOR has each as after reset, but for MXCSR.
        let mut vectors = Vectors([0; AREA_BYTES]);
        vectors.0[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        vectors.0[MXCSR_AT..MXCSR_AT + 4].copy_from_slice(&MXCSR.to_le_bytes());
        Self {
            vectors: UnsafeCell::new(vectors),
            saved: xsave.saved,
            xcr0: Cell::new(xsave.xcr0),
            breakpoints: Cell::new([0; 4]),
            tsc_aux: Cell::new(0),
            has_tsc_aux: extended_leaf(0x8000_0001).edx >> 27 & 1 != 0,
            is_inside: Cell::new(false),
            due: Cell::new(timer::NEVER),
        }
    }

    /// When the vCPU is due by its APIC's timer, by the host's counter.
    pub fn due(&self) -> u64 {
        self.due.get()
    }

    /// That is so.
    pub(super) fn set_due(&self, due: u64) {
        self.due.set(due);
    }

    /// Has the processor's XCR0 be this, while it is there. What it turns off stays where it is.
    pub(super) fn put_xcr0(&self, value: u64) {
        if self.saved != 0 {
            // SAFETY: the processor has XSAVE and these bits, which the program uses as little as what they turn on; its own
            // `CR4.OSXSAVE` is on.
            unsafe { XCr0::write_raw(value) }
        }
    }

    /// Puts it into the processor, if it is not there.
    #[inline]
    pub(super) fn load(&self) {
        if !self.is_inside.replace(true) {
            self.put_in();
        }
    }

    fn put_in(&self) {
        let [zero, one, two, three] = self.breakpoints.get();
        // All of it is put in, also what the vCPU has turned off since it was on.
        self.put_xcr0(self.saved);
        // SAFETY: the program uses neither of these registers; breakpoints are off while it runs. What XRSTOR and FXRSTOR take
        // was made by XSAVE and FXSAVE, or above.
        unsafe {
            // AMD's XRSTOR and FXRSTOR write where the last x87 instruction was only if an exception of its is pending: what the
            // vCPU before has left there is overwritten first, by a load of the program's own.
            asm!("fnclex", "emms", "fild dword ptr [{}]", in(reg) &raw const ONE, options(nostack, readonly));
            if self.saved != 0 {
                asm!("xrstor64 [{}]", in(reg) self.vectors.get(), in("eax") u32::MAX, in("edx") u32::MAX,
                    options(nostack, readonly));
            } else {
                asm!("fxrstor64 [{}]", in(reg) self.vectors.get(), options(nostack, readonly));
            }
            asm!("mov dr0, {}", "mov dr1, {}", "mov dr2, {}", "mov dr3, {}",
                in(reg) zero, in(reg) one, in(reg) two, in(reg) three, options(nostack, nomem));
            if self.has_tsc_aux {
                x86_64::registers::model_specific::Msr::new(TSC_AUX)
                    .write(self.tsc_aux.get().into());
            }
        }
        self.put_xcr0(self.xcr0.get());
    }

    /// Takes it from the processor, if it is there; and the guest's alarm.
    #[inline]
    pub fn put(&self) {
        if self.is_inside.get() {
            self.take_out();
            timer::set_guest_alarm(timer::NEVER);
            self.is_inside.set(false);
        }
    }

    fn take_out(&self) {
        let (zero, one, two, three);
        self.xcr0.set(self.xcr0());
        self.put_xcr0(self.saved);
        // SAFETY: as above.
        unsafe {
            if self.saved != 0 {
                asm!("xsave64 [{}]", in(reg) self.vectors.get(), in("eax") u32::MAX, in("edx") u32::MAX,
                    options(nostack));
            } else {
                asm!("fxsave64 [{}]", in(reg) self.vectors.get(), options(nostack));
            }
            asm!("mov {}, dr0", "mov {}, dr1", "mov {}, dr2", "mov {}, dr3",
                out(reg) zero, out(reg) one, out(reg) two, out(reg) three, options(nostack, nomem));
        }
        self.breakpoints.set([zero, one, two, three]);
    }

    /// XCR0, while it is in the processor.
    pub(super) fn xcr0(&self) -> u64 {
        if self.saved == 0 { self.xcr0.get() } else { XCr0::read_raw() }
    }

    /// `TSC_AUX`.
    pub(super) fn tsc_aux(&self) -> u32 {
        self.tsc_aux.get()
    }

    /// Writes `TSC_AUX`, while it is in the processor.
    pub(super) fn set_tsc_aux(&self, value: u32) {
        self.tsc_aux.set(value);
        if self.has_tsc_aux {
            // SAFETY: the CPU has it, and the program does not use it.
            unsafe { x86_64::registers::model_specific::Msr::new(TSC_AUX).write(value.into()) }
        }
    }
}

impl Default for Resident {
    fn default() -> Self {
        Self::new()
    }
}
