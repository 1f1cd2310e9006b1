//! A machine that QEMU makes up: running it to its end, for as long as it comes on and anybody wants it
//! ([`to_the_end`]), and the initial file system of a Linux in it ([`Archive`]).

mod cpio;
mod watch;

pub use cpio::Archive;
pub use watch::{Interrupt, die_of, to_the_end};
