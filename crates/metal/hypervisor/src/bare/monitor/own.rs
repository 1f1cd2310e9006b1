//! The machine's own devices, as the monitor sees them.

use mayfly_vm::platform::memory::OutOfMemory;

use super::control;
use crate::bare::devices::network::uplink;
use crate::bare::own::disk;
use crate::bare::threads::{self, Name};

/// Starts their threads.
///
/// # Errors
///
/// [`OutOfMemory`], when there is none for a stack.
pub(super) fn start() -> Result<(), OutOfMemory> {
    uplink::start()?;
    control::start()?;
    match disk::get() {
        Some(disk) => threads::spawn(Name::new("the disk"), || disk.serve()),
        None => Ok(()),
    }
}

/// Bounds what comes in, if `rate` is there, to so many bytes a second, or not at all by 0. Prints what has come in and gone
/// out.
pub(super) fn uplink(rate: Option<u64>) {
    if let Some(rate) = rate {
        uplink::limit(Some(rate).filter(|rate| *rate != 0));
    }
    uplink::say_counts();
}
