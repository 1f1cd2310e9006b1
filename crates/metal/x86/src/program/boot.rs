//! The way from the loader to where VMs can run: what the loader has told, the machine's memory, tables of our own, and what
//! guests need of the processor.

mod memory;
mod tables;
mod wrong;

use alloc::vec::Vec;
use core::str;

use mayfly_x86::boot::archive;
use mayfly_x86::boot::hvm::{Physical, StartInfo};
use mayfly_x86::boot::plan::Plan;
use mayfly_x86::svm::features::Features;

use super::processor::console::say;
use super::processor::{interrupts, svm, timer, traps};
use super::world::{frames, heap};
use wrong::{LINE, Wrong};

core::arch::global_asm!(include_str!("boot/start.S"), options(att_syntax));

/// Names of the kernel and of its ramdisk in the archive that the loader gives.
const KERNEL: &str = "kernel";
const RAMDISK: &str = "initrd";
/// What is to be run, on a machine that is ready for it.
pub(super) struct Boot {
    pub(super) features: Features,
    pub(super) plan: Plan<'static>,
    pub(super) kernel: &'static [u8],
    pub(super) ramdisk: &'static [u8],
}

/// Makes the machine ready.
pub(super) fn begin(told: u64) -> Result<Boot, Wrong> {
    heap::prepare();
    traps::prepare();
    let features = svm::features()?;
    say!("{features}");
    svm::enable(features)?;

    let info = StartInfo::read(&memory::Loaded, told)?;
    let (line, archive) = (line(info.command_line)?, memory::module(info)?);
    let map = memory::map(info)?;
    let free = memory::prepare(info, &map)?;
    tables::prepare(&map);
    memory::give_rest(&free);
    interrupts::prepare();
    timer::prepare()?;
    let hertz = timer::rate().hertz();
    say!("{} frames are free; the time-stamp counter has {} kHz", frames::free(), hertz / 1000);

    let plan = Plan::parse(line)?;
    let kernel = archive::find(archive, KERNEL).ok_or(Wrong::NoFile(KERNEL))?;
    let ramdisk = archive::find(archive, RAMDISK).unwrap_or_default();
    Ok(Boot { features, plan, kernel, ramdisk })
}

/// The command line, in a place of its own: where the loader has it may be mapped no more.
fn line(address: u64) -> Result<&'static str, Wrong> {
    if address == 0 {
        return Ok("");
    }
    let mut bytes = Vec::new();
    for at in (address..).take(LINE) {
        let mut byte = [0];
        memory::Loaded.read(at, &mut byte).ok_or(Wrong::Line)?;
        if byte == [0] {
            return str::from_utf8(bytes.leak()).map_err(|_| Wrong::Line);
        }
        bytes.extend(byte);
    }
    Err(Wrong::Line)
}
