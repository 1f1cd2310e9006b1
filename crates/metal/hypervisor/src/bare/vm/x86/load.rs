//! How a guest's kernel is loaded on x86-64: a bzImage, ramdisks, tables of the ACPI, and what its first vCPU begins with
//! (Linux, Documentation/arch/x86/boot.rst, "64-bit Boot Protocol").

use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::slice;

use mayfly_hypervisor::board::Region;
use mayfly_hypervisor::plan::Plan;
use mayfly_hypervisor::x86::layout::{
    BALLOON, BALLOON_INTERRUPT, CARD, CARD_INTERRUPT, CONSOLE, CONSOLE_INTERRUPT, DISK,
    DISK_INTERRUPT, ENTROPY, ENTROPY_INTERRUPT, VIRTIO_BYTES, registers,
};
use mayfly_vm::HostFault;
use mayfly_x86::boot::bzimage::{self, BzImage};
use mayfly_x86::boot::parameters::{self, Kind, Told};
use mayfly_x86::machine::acpi::{self, Virtio};
use mayfly_x86::machine::layout;

use super::forks::Start;
use crate::bare::threads::console::say;
use crate::bare::threads::preemption_point;
use crate::bare::vm::machine::Machine;
use crate::bare::world::memory::GuestMemory;

/// Why a kernel was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum NotLoaded {
    #[error(transparent)]
    Kernel(#[from] bzimage::Wrong),
    #[error(transparent)]
    Tables(#[from] acpi::TooLarge),
    #[error("its memory cannot be written: {0}")]
    Memory(#[from] HostFault),
    #[error("there is no room for ramdisks of {0} bytes")]
    Ramdisks(u64),
    #[error("its kernel takes arguments of {most} bytes, and there are {has}")]
    Arguments { has: usize, most: u32 },
}

const PRESENT: u64 = 0b11;
const LARGE: u64 = 1 << 7;
const BLOCK: u64 = 2 << 20;
/// Code of 64 bits, and data, as the kernel's own selectors have them: 0x10 and 0x18.
const DESCRIPTORS: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
const _: () = assert!(size_of_val(&DESCRIPTORS) == layout::DESCRIPTORS_BYTES);
/// Ramdisks follow each other at such multiples, between which there are zeroes: to a kernel they are one.
const ALIGNED: u64 = 4;
/// Bytes that are written before others may have the processor.
const AT_ONCE: usize = 256 << 10;

/// The bytes of a module.
fn module(region: &Region) -> &'static [u8] {
    let start = with_exposed_provenance(region.start as usize);
    // SAFETY: the loader has put it there; its memory is kept, mapped, and never written.
    unsafe { slice::from_raw_parts(start, (region.end - region.start) as usize) }
}

/// Loads what the guest begins with. Returns the vCPUs whose threads begin to run them, and where: all of them, since whether
/// another than the first has started is its APIC's to say.
pub(crate) fn load(
    machine: &Machine,
    memory: &GuestMemory,
) -> Result<Vec<(usize, Start)>, &'static str> {
    let plan = &machine.plan;
    let entry = try_load(machine, memory).map_err(|why| {
        say!("mayfly: {}: {why}", plan.name);
        "it cannot be loaded"
    })?;
    let start = Start { entry, context: layout::PARAMETERS };
    Ok((0..plan.vcpus as usize).map(|vcpu| (vcpu, start)).collect())
}

/// The same. Returns the kernel's first instruction.
fn try_load(machine: &Machine, memory: &GuestMemory) -> Result<u64, NotLoaded> {
    let plan = &machine.plan;
    let end = registers(plan.memory);
    let kernel = BzImage::parse(module(&plan.kernel), end)?;
    write(memory, kernel.address, kernel.contents)?;

    let length = |region: &Region| (region.end - region.start).next_multiple_of(ALIGNED);
    let bytes = plan.ramdisks.iter().map(length).sum();
    let ramdisk = kernel.ramdisk(bytes, end).ok_or(NotLoaded::Ramdisks(bytes))?;
    let mut at = ramdisk;
    for region in &plan.ramdisks {
        write(memory, at, module(region))?;
        at += length(region);
    }

    let (arguments, most) = (plan.arguments.as_bytes(), kernel.command_line_max);
    if arguments.len() > most as usize {
        return Err(NotLoaded::Arguments { has: arguments.len(), most });
    }
    memory.write(layout::COMMAND_LINE, arguments)?;
    memory.write(layout::COMMAND_LINE + arguments.len() as u64, &[0])?;

    memory.write(layout::ACPI, &acpi::tables(plan.vcpus, &virtio(plan), preemption_point)?)?;
    preemption_point();
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
    Ok(kernel.entry())
}

/// The virtio devices of a VM of `plan`, as its guest is told of them.
fn virtio(plan: &Plan) -> Vec<Virtio> {
    let all = [
        (true, ENTROPY, ENTROPY_INTERRUPT),
        (plan.has_disk(), DISK, DISK_INTERRUPT),
        (plan.card.network.is_some(), CARD, CARD_INTERRUPT),
        (plan.hvc, CONSOLE, CONSOLE_INTERRUPT),
        (plan.balloon, BALLOON, BALLOON_INTERRUPT),
    ];
    let device = |(address, pin): (u64, u32)| {
        // All lie below 4 GiB.
        Virtio { address: address as u32, bytes: VIRTIO_BYTES as u32, pin }
    };
    all.into_iter()
        .filter(|(is_there, ..)| *is_there)
        .map(|(_, at, pin)| device((at, pin)))
        .collect()
}

/// Writes many bytes. Others may have the processor in between.
fn write(memory: &GuestMemory, at: u64, bytes: &[u8]) -> Result<(), HostFault> {
    for (at, piece) in (at..).step_by(AT_ONCE).zip(bytes.chunks(AT_ONCE)) {
        memory.write(at, piece)?;
        preemption_point();
    }
    Ok(())
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
    for first in (0..layout::MAPPED_GIB * 512).step_by(64) {
        let blocks = first..first + 64;
        words(lower + first * 8, &mut blocks.map(|block| (block * BLOCK) | LARGE | PRESENT))?;
        preemption_point();
    }
    Ok(())
}
