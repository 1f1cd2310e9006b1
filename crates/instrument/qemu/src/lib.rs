//! A machine that QEMU makes up: running it to its end, for as long as it comes on and anybody wants it
//! ([`to_the_end`]), and the initial file system of a Linux in it ([`Archive`]).

mod cpio;
mod interrupt;
mod watch;

pub use cpio::Archive;
pub use interrupt::{Ignored, Interrupt, die_of};
pub use watch::to_the_end;
