//! A vCPU's own thread reads or writes, and the vCPU runs on only when that is over.

use mayfly_record::units::duration;

use super::likely::likely;
use crate::names::system_call;
use crate::path::Held;
use crate::record::{Cause, Trace};

/// What waits for a device or for room.
const WRITES: [libc::c_long; 14] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_msync,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
];
/// What waits for a device if it reads a file; else it may wait to be told to go on, as a vCPU does that is paused.
const READS: [libc::c_long; 5] =
    [libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2];
/// Where a reader waits for another program.
const MESSAGES: [&str; 4] = ["pipe_read", "anon_pipe_read", "fifo_pipe_read", "eventfd_read"];

pub(super) fn find(_: &Trace, held: &Held<'_>) -> Option<Cause> {
    let seen = held.seen.filter(|_| held.of_vcpu)?;
    let (number, _) = seen.call?;
    let file = seen.file.as_deref();
    let reads_file = || {
        seen.is_in_call(&READS)
            && !seen.is_in(&MESSAGES)
            && file.is_some_and(|file| file.starts_with('/') && !file.starts_with("/dev/"))
    };
    if !seen.is_in_call(&WRITES) && !reads_file() {
        return None;
    }
    let on = file.map_or_else(String::new, |file| format!(" on {file}"));
    let evidence = vec![
        format!("the vCPU's thread slept {} in {}{on}", duration(held.took), system_call(number)),
        "it had run the vCPU before, and ran it again after".to_owned(),
    ];
    Some(likely(
        "blocking-io",
        "a vCPU's own thread reads or writes, and the vCPU waits",
        "have another thread do it, or the kernel by io_uring, and an eventfd take the guest's request",
        evidence,
    ))
}
