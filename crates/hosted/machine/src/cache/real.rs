//! Lines of the host's own caches, maintained by its processor's instructions.

use std::sync::atomic::AtomicU64;

use mayfly_platform::address::{Hpa, PAGE_SHIFT, PAGE_SIZE, Pfn};

use super::line::LINE;
use crate::arena::Words;

/// What the processor has to maintain lines with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Real {
    clean: Instruction,
    clean_invalidate: Instruction,
}

impl Real {
    pub(super) fn detect() -> Self {
        Self { clean: Instruction::to_clean(), clean_invalidate: Instruction::to_invalidate() }
    }

    pub(super) fn clean(self, arena: &Words, first: Pfn, count: u64) {
        each_line(arena, first, count, self.clean);
    }

    pub(super) fn clean_invalidate(self, arena: &Words, first: Pfn, count: u64) {
        each_line(arena, first, count, self.clean_invalidate);
    }

    pub(super) fn invalidate_instructions(arena: &Words, first: Pfn, count: u64) {
        if let Some(instruction) = Instruction::to_invalidate_instructions() {
            each_line(arena, first, count, instruction);
            forget_fetched();
        }
    }
}

/// Does `instruction` to each line of `count` frames, and returns when all are done.
fn each_line(arena: &Words, first: Pfn, count: u64, instruction: Instruction) {
    for frame in first.get()..first.get() + count {
        let frame = frame << PAGE_SHIFT;
        for offset in (0..PAGE_SIZE).step_by(LINE as usize) {
            instruction.execute(arena.at(Hpa::new(frame + offset)));
        }
    }
    wait_for_all();
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
enum Instruction {
    /// Writes back, and drops; each after the one before it. Part of SSE2.
    Clflush,
    /// The same, in any order.
    Clflushopt,
    /// Writes back, in any order; the line may stay.
    Clwb,
}

#[cfg(target_arch = "x86_64")]
impl Instruction {
    fn to_clean() -> Self {
        if features() & 1 << 24 == 0 { Self::to_invalidate() } else { Self::Clwb }
    }

    fn to_invalidate() -> Self {
        if features() & 1 << 23 == 0 { Self::Clflush } else { Self::Clflushopt }
    }

    /// Its instruction caches see what is written.
    fn to_invalidate_instructions() -> Option<Self> {
        None
    }

    #[inline]
    fn execute(self, word: &AtomicU64) {
        use std::arch::asm;
        let line = word.as_ptr();
        // SAFETY: writing back or dropping a line of memory that is there changes nothing that a program sees, and the
        // processor has the instruction: SSE2's is in every x86-64 one, the others were looked for.
        unsafe {
            match self {
                Self::Clflush => std::arch::x86_64::_mm_clflush(line.cast()),
                Self::Clflushopt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                Self::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
}

/// EBX of CPUID's leaf 7: bit 23 is `clflushopt`, bit 24 `clwb` (Intel SDM volume 2, CPUID; AMD APM volume 3, E.3.6).
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "CPUID is safe to call from some version of Rust on")]
fn features() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    // SAFETY: every x86-64 processor has the instruction, and the first leaf says whether there is the other.
    unsafe { if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).ebx } }
}

#[cfg(target_arch = "x86_64")]
fn wait_for_all() {
    // SAFETY: a fence; part of SSE2.
    unsafe { std::arch::x86_64::_mm_mfence() };
}

#[cfg(target_arch = "x86_64")]
fn forget_fetched() {}

#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug)]
enum Instruction {
    /// `dc cvac`: writes back to the point of coherency.
    Clean,
    /// `dc civac`: the same, and drops.
    CleanInvalidate,
    /// `ic ivau`: drops from instruction caches.
    Fetched,
}

#[cfg(target_arch = "aarch64")]
impl Instruction {
    fn to_clean() -> Self {
        Self::Clean
    }

    fn to_invalidate() -> Self {
        Self::CleanInvalidate
    }

    #[expect(clippy::unnecessary_wraps, reason = "other architectures have none")]
    fn to_invalidate_instructions() -> Option<Self> {
        Some(Self::Fetched)
    }

    #[inline]
    fn execute(self, word: &AtomicU64) {
        use std::arch::asm;
        let line = word.as_ptr();
        // SAFETY: maintaining a line of memory that is there changes nothing that a program sees; Linux lets programs
        // do it (SCTLR_EL1.UCI).
        unsafe {
            match self {
                Self::Clean => asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)),
                Self::CleanInvalidate => {
                    asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
                }
                Self::Fetched => {
                    asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags));
                }
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn wait_for_all() {
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb sy", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
fn forget_fetched() {
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("isb", options(nostack, preserves_flags)) };
}
