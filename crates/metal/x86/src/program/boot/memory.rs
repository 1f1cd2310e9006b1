//! The machine's memory: what the loader has told of it, and what of it is free.

use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::{addr_of, with_exposed_provenance};
use core::slice;

use mayfly_x86::boot::hvm::{self, Physical, Region, StartInfo};
use mayfly_x86::boot::room;

use super::wrong::Wrong;
use crate::program::world::{frames, heap};

/// What `start.S` maps.
const FIRST: u64 = 4 << 30;
/// The same, in frames.
const MAPPED: u64 = FIRST / room::FRAME;
/// What a PC has for other things.
const LOW: Range<u64> = 0..0x10_0000;
/// Frames that a machine has at least: for the heap, and for some tables.
const LEAST: u64 = 4096;
/// The heap gets so many frames, as a power of two.
const HEAP_ORDER: u32 = 11;

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// The program itself.
fn image() -> Range<u64> {
    addr_of!(image_start) as u64..addr_of!(image_end) as u64
}

/// What the loader has put in memory, as `start.S` has mapped it.
pub(super) struct Loaded;

impl Physical for Loaded {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let is_there = address != 0 && address.checked_add(bytes.len() as u64)? <= FIRST;
        // SAFETY: it is mapped, and nothing writes there but `frames::give`, which is called after this.
        is_there.then(|| unsafe {
            let from = with_exposed_provenance::<u8>(address as usize);
            bytes.copy_from_slice(slice::from_raw_parts(from, bytes.len()));
        })
    }
}

/// The memory map.
pub(super) fn map(info: StartInfo) -> Result<Vec<Region>, hvm::Wrong> {
    info.regions(&Loaded).collect()
}

/// The first module.
pub(super) fn module(info: StartInfo) -> Result<&'static [u8], Wrong> {
    let Some(range) = info.modules(&Loaded).next() else { return Ok(&[]) };
    let range = range?;
    if range.start < LOW.end || range.end > FIRST {
        return Err(hvm::Wrong::Place(range.start).into());
    }
    let start = with_exposed_provenance(range.start as usize);
    // SAFETY: the loader has put it there, and `prepare` has kept it from whoever asks for frames.
    Ok(unsafe { slice::from_raw_parts(start, (range.end - range.start) as usize) })
}

/// Frames that are free.
pub(super) struct Free(Vec<Range<u64>>);

/// Gives what is free, as far as `start.S` has mapped it, to whoever asks for frames, and some of it to the heap.
pub(super) fn prepare(info: StartInfo, map: &[Region]) -> Result<Free, Wrong> {
    let mut taken: Vec<_> = info.modules(&Loaded).collect::<Result<_, _>>()?;
    taken.extend([LOW, image()]);
    let free = room::free(map, &taken);
    let below = |range: &Range<u64>| range.end.min(MAPPED).saturating_sub(range.start);
    let count = free.iter().map(below).sum();
    if count < LEAST {
        return Err(Wrong::Memory(count));
    }
    // SAFETY: the frames are memory, by what the loader says, and nothing has them. Those below are mapped.
    unsafe { frames::give(&free, MAPPED) };
    let piece = frames::take(HEAP_ORDER).ok_or(Wrong::Memory(count))?;
    // SAFETY: the frames were just taken, and are not given back.
    unsafe { heap::add(piece, 1 << HEAP_ORDER) };
    Ok(Free(free))
}

/// Gives the rest, which the program's own tables have mapped.
pub(super) fn give_rest(Free(free): &Free) {
    // SAFETY: they are those of `prepare`; `tables::prepare` has mapped all memory.
    unsafe { frames::give_rest(free, MAPPED) }
}
