//! A kernel in a guest's memory, and what its first vCPU begins with (Linux, Documentation/arch/x86/boot.rst, "64-bit Boot
//! Protocol").

use mayfly_vm::HostFault;
use mayfly_x86::boot::bzimage::{self, BzImage};
use mayfly_x86::boot::parameters::{self, Kind, Told};
use mayfly_x86::machine::{acpi, layout};

use crate::program::boot::Boot;
use crate::program::world::memory::GuestMemory;

/// Why a kernel was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotLoaded {
    #[error(transparent)]
    Kernel(#[from] bzimage::Wrong),
    #[error(transparent)]
    Tables(#[from] acpi::TooLarge),
    #[error("its memory cannot be written: {0}")]
    Memory(#[from] HostFault),
    #[error("there is no room for a ramdisk of {0} bytes")]
    Ramdisk(usize),
    #[error("its kernel takes arguments of {most} bytes, and there are {has}")]
    Arguments { has: usize, most: u32 },
}

/// Where the first vCPU begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

const PRESENT: u64 = 0b11;
const LARGE: u64 = 1 << 7;
const BLOCK: u64 = 2 << 20;
/// Code of 64 bits, and data, as the kernel's own selectors have them: 0x10 and 0x18.
const DESCRIPTORS: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
/// Bytes of them.
pub(super) const DESCRIPTORS_BYTES: usize = size_of_val(&DESCRIPTORS);

/// Loads the kernel, its ramdisk and what it is told.
pub(super) fn load(memory: &GuestMemory, boot: &Boot) -> Result<Entry, NotLoaded> {
    let end = boot.plan.memory;
    let kernel = BzImage::parse(boot.kernel, end)?;
    memory.write(kernel.address, kernel.contents)?;

    let bytes = boot.ramdisk.len();
    let ramdisk = kernel.ramdisk(bytes as u64, end).ok_or(NotLoaded::Ramdisk(bytes))?;
    memory.write(ramdisk, boot.ramdisk)?;

    let (arguments, most) = (boot.plan.arguments.as_bytes(), kernel.command_line_max);
    if arguments.len() > most as usize {
        return Err(NotLoaded::Arguments { has: arguments.len(), most });
    }
    memory.write(layout::COMMAND_LINE, arguments)?;
    memory.write(layout::COMMAND_LINE + arguments.len() as u64, &[0])?;

    let tables = acpi::tables(boot.plan.vcpus)?;
    memory.write(layout::ACPI, &tables)?;
    memory.write(layout::RESET_VECTOR, &layout::RESET_CODE)?;
    let map = [
        (0, layout::LOW_END, Kind::Usable),
        (layout::ACPI, layout::FIRMWARE, Kind::AcpiTables),
        (layout::FIRMWARE, layout::HIGH, Kind::Reserved),
        (layout::HIGH, end, Kind::Usable),
    ];
    let told = Told {
        command_line: layout::COMMAND_LINE as u32,
        ramdisk: if bytes == 0 { (0, 0) } else { (ramdisk as u32, bytes as u32) },
        rsdp: layout::ACPI,
        memory: &map,
    };
    memory.write(layout::PARAMETERS, &parameters::parameters(&kernel, &told))?;
    descriptors_and_tables(memory)?;
    Ok(Entry(kernel.entry()))
}

fn descriptors_and_tables(memory: &GuestMemory) -> Result<(), HostFault> {
    let words = |at: u64, words: &mut dyn Iterator<Item = u64>| {
        (at..)
            .step_by(8)
            .zip(words)
            .try_for_each(|(at, word)| memory.write(at, &word.to_le_bytes()))
    };
    words(layout::DESCRIPTORS, &mut DESCRIPTORS.into_iter())?;
    let (top, upper) = (layout::PAGE_TABLES, layout::PAGE_TABLES + 0x1000);
    let lower = upper + 0x1000;
    words(top, &mut [upper | PRESENT].into_iter())?;
    words(upper, &mut (0..layout::MAPPED_GIB).map(|gib| (lower + gib * 0x1000) | PRESENT))?;
    words(lower, &mut (0..layout::MAPPED_GIB * 512).map(|block| (block * BLOCK) | LARGE | PRESENT))
}
