//! What the loader has put in memory: its words, the command line, and the archive of VMs.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::with_exposed_provenance;
use core::slice;

use mayfly_x86::boot::hvm::{self, Physical, StartInfo};

/// What the first instructions map.
pub(super) const FIRST: u64 = 4 << 30;
/// What a PC has for other things.
pub(super) const LOW: Range<u64> = 0..0x10_0000;
/// The most of a command line.
const LINE: usize = 4096;

/// What the loader has put in memory, as the first instructions have mapped it.
pub(super) struct Loaded;

impl Physical for Loaded {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let is_there = address != 0 && address.checked_add(bytes.len() as u64)? <= FIRST;
        // SAFETY: it is mapped, until the program's own tables are used, and nothing writes there before.
        is_there.then(|| unsafe {
            let from = with_exposed_provenance::<u8>(address as usize);
            bytes.copy_from_slice(slice::from_raw_parts(from, bytes.len()));
        })
    }
}

/// Why what the loader has told cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error(transparent)]
    Told(#[from] hvm::Wrong),
    #[error("the command line is no text of at most {LINE} bytes")]
    Line,
}

/// The command line: a loader puts it anywhere.
pub(super) fn line(info: StartInfo) -> Result<String, Wrong> {
    if info.command_line == 0 {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    for at in (info.command_line..).take(LINE) {
        let mut byte = [0];
        Loaded.read(at, &mut byte).ok_or(Wrong::Line)?;
        if byte == [0] {
            return String::from_utf8(bytes).map_err(|_| Wrong::Line);
        }
        bytes.extend(byte);
    }
    Err(Wrong::Line)
}

/// Where the archive of VMs is: the first module. Empty, if there is none.
pub(super) fn archive(info: StartInfo) -> Result<Range<u64>, Wrong> {
    let Some(range) = info.modules(&Loaded).next() else { return Ok(0..0) };
    let range = range?;
    if range.start < LOW.end || range.end > FIRST {
        return Err(hvm::Wrong::Place(range.start).into());
    }
    Ok(range)
}

/// What lies there.
///
/// # Safety
///
/// The loader has put it there, it is mapped, and is never written.
pub(super) unsafe fn bytes(place: &Range<u64>) -> &'static [u8] {
    if place.is_empty() {
        return &[];
    }
    let start = with_exposed_provenance(place.start as usize);
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start, (place.end - place.start) as usize) }
}
