//! A thread waits for a lock that another holds.
//!
//! Who woke a thread is certain, and says nothing of who held the lock. So the cause is named only where the lock itself
//! says who has it: a mutex of the C library's has its owner's number beside its word, and `/proc/locks` has that of a
//! lock on a file.

use mayfly_record::units::duration;

use super::likely::likely;
use crate::looks::is_one;
use crate::path::Held;
use crate::record::{Cause, Trace};

const LOCKS: [libc::c_long; 3] = [libc::SYS_futex, libc::SYS_flock, libc::SYS_fcntl];

pub(super) fn find(trace: &Trace, held: &Held<'_>) -> Option<Cause> {
    let seen = held.seen?;
    let (number, _) = seen.call?;
    let holder = seen.holder.filter(|holder| *holder != held.tid)?;
    if !is_one(number, &LOCKS) {
        return None;
    }
    let is_file_s = number != libc::SYS_futex as u64;
    let whose = if is_file_s { "process" } else { "thread" };
    let meanwhile = trace.meanwhile(holder, (held.from, held.to));
    let waited = duration(held.took);
    let evidence = vec![
        format!("the lock says that {whose} {holder} has it{meanwhile}"),
        format!("thread {} slept {waited} for it", held.tid),
    ];
    let what = if is_file_s {
        "the program waits for a lock on a file that another process has"
    } else {
        "the thread waits for a lock that another thread has"
    };
    let remedy = if is_file_s {
        "release the file's lock before slow work, or have each VM a file of its own"
    } else {
        "do what takes long before the lock is taken, or after it is released"
    };
    Some(likely("lock-contention", what, remedy, evidence))
}
