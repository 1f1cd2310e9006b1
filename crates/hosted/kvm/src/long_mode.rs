//! 64-bit mode, ring 3, without a boot: page tables in guest memory and registers as if a kernel
//! had just dropped to user mode.
//!
//! There is no GDT, IDT or usable stack: nothing reloads a segment, interrupts are off, and an
//! exception ends in a shutdown exit. Bits and layouts are those of the Intel SDM, volume 3,
//! chapters 2 (control registers), 3 (segments) and 5 (paging).

use std::ops::Range;

use crate::{Error, GuestMemory};

/// Bytes of a table.
const TABLE_SIZE: u64 = 0x1000;

const GIB: u64 = 1 << 30;

/// The GiB that are mapped whatever memory there is, since devices are there.
const GIBS_AT_LEAST: u64 = 4;

/// The GiB that can be mapped.
const GIBS_AT_MOST: u64 = 64;

/// The first address that no guest reaches.
pub(crate) const REACH: u64 = GIBS_AT_MOST * GIB;

/// Where the page tables lie: one PML4, one PDPT, and room for a page directory for each GiB.
pub(crate) const TABLES: Range<u64> = 0x1000..DIRECTORIES + GIBS_AT_MOST * TABLE_SIZE;

const PML4: u64 = 0x1000;
const PDPT: u64 = PML4 + TABLE_SIZE;
const DIRECTORIES: u64 = PDPT + TABLE_SIZE;

/// Present, writable, user, accessed: what a reference to a table has.
const TABLE: u64 = 0b10_0111;
/// The same, dirty, and a page of 2 MiB. Accessed and dirty are set already, so that a walk writes
/// nothing.
const BLOCK: u64 = TABLE | 1 << 6 | 1 << 7;

/// Maps virtual addresses to the same physical ones, in blocks of 2 MiB, open to ring 3: those of
/// `memory`, but 4 GiB at least, and 64 GiB at most.
pub(crate) fn write_tables(memory: &GuestMemory) -> Result<(), Error> {
    let gibs = (memory.size() as u64).div_ceil(GIB).clamp(GIBS_AT_LEAST, GIBS_AT_MOST);
    write_table(memory, PML4, [PDPT | TABLE].into_iter())?;
    write_table(memory, PDPT, (0..gibs).map(|gib| (DIRECTORIES + gib * TABLE_SIZE) | TABLE))?;
    // The directories are adjacent, and so is what they map.
    write_table(memory, DIRECTORIES, (0..gibs * 512).map(|block| (block << 21) | BLOCK))
}

fn write_table(
    memory: &GuestMemory,
    gpa: u64,
    entries: impl Iterator<Item = u64>,
) -> Result<(), Error> {
    let bytes: Vec<u8> = entries.flat_map(u64::to_le_bytes).collect();
    memory.write(gpa as usize, &bytes)
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::enter;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use kvm_bindings::{KVM_MP_STATE_RUNNABLE, kvm_mp_state, kvm_regs, kvm_segment};
    use kvm_ioctls::VcpuFd;

    use super::PML4;
    use crate::{Error, Payload};

    const CR0_PE_ET_NE_PG: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 31;
    const CR4_PAE: u64 = 1 << 5;
    const EFER_LME_LMA: u64 = 1 << 8 | 1 << 10;

    /// I/O privilege level 3: `in` and `out` are allowed in ring 3 and need no bitmap in a TSS. Bit
    /// 1 is always set.
    const RFLAGS_IOPL3: u64 = 3 << 12 | 1 << 1;

    /// A flat 64-bit code segment and a flat data segment of ring 3: base 0, limit 4 GiB, accessed.
    const RING3_DATA: kvm_segment = kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector: 0x20 | 3,
        type_: 0b0011,
        present: 1,
        dpl: 3,
        db: 1,
        s: 1,
        l: 0,
        g: 1,
        avl: 0,
        unusable: 0,
        padding: 0,
    };
    const RING3_CODE: kvm_segment =
        kvm_segment { selector: 0x28 | 3, type_: 0b1011, db: 0, l: 1, ..RING3_DATA };

    /// Puts the vCPU at `entry`, the first instruction of `payload`.
    pub(crate) fn enter(vcpu: &VcpuFd, payload: &Payload, entry: u64) -> Result<(), Error> {
        let mut sregs = vcpu.get_sregs().map_err(Error::ioctl("KVM_GET_SREGS"))?;
        sregs.cr0 = CR0_PE_ET_NE_PG;
        sregs.cr3 = PML4;
        sregs.cr4 = CR4_PAE;
        sregs.efer = EFER_LME_LMA;
        sregs.cs = RING3_CODE;
        for segment in [&mut sregs.ss, &mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs] {
            *segment = RING3_DATA;
        }
        vcpu.set_sregs(&sregs).map_err(Error::ioctl("KVM_SET_SREGS"))?;

        let regs = kvm_regs {
            rip: entry,
            rflags: RFLAGS_IOPL3,
            rdi: payload.touch.start,
            rsi: payload.touch.end,
            rdx: payload.port.into(),
            r9: payload.doorbell.unwrap_or_default(),
            ..Default::default()
        };
        vcpu.set_regs(&regs).map_err(Error::ioctl("KVM_SET_REGS"))?;

        // With the in-kernel interrupt controller, vCPUs other than 0 wait for an INIT that nobody
        // sends here.
        let runnable = kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE };
        vcpu.set_mp_state(runnable).map_err(Error::ioctl("KVM_SET_MP_STATE"))
    }
}
