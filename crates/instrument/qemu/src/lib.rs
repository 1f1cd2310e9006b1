//! A machine in QEMU: [`to_the_end`] runs it until it ends, makes no more progress or is interrupted. [`Archive`] packs
//! the initial files of a Linux in it.

mod cpio;
mod interrupt;
mod watch;

pub use cpio::Archive;
pub use interrupt::{Ignored, Interrupt, die_of};
pub use watch::{Running, to_the_end, to_the_end_with};
