//! What is asked of the kernel that no safe crate asks: following other processes, and filters of system calls.
//!
//! `nix` has `ptrace` and `waitpid`, but its signals leave out the real-time ones, which VMMs kick their vCPUs with: a stop
//! by one would be an error there. `seccompiler` kills programs of any architecture but one, so 32-bit ones would die.

pub(crate) mod process;
pub(crate) mod ptrace;
pub(crate) mod signals;

use std::io;

/// The error of a call that returned -1, or what it returned.
fn checked<T: PartialEq + From<i8>>(returned: T) -> io::Result<T> {
    if returned == T::from(-1) { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
