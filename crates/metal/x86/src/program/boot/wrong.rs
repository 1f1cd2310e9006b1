//! Why nothing can be run.

use mayfly_x86::boot::{hvm, plan};

use crate::program::processor::svm::Lacking;
use crate::program::processor::timer::NoTimer;

/// The most of a command line.
pub(super) const LINE: usize = 4096;

/// Why nothing can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error(transparent)]
    Lacking(#[from] Lacking),
    #[error(transparent)]
    Told(#[from] hvm::Wrong),
    #[error(transparent)]
    Plan(#[from] plan::Wrong<'static>),
    #[error(transparent)]
    Timer(#[from] NoTimer),
    #[error("of the machine's memory, {0} frames are free: too few")]
    Memory(u64),
    #[error("the command line is no text of at most {LINE} bytes")]
    Line,
    #[error("there is no file \"{0}\" in what the loader gives (QEMU: -initrd, a cpio archive)")]
    NoFile(&'static str),
}
