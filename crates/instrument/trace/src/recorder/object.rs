//! What a thread waits for, as the kernel or the program's own memory says it: the file of its call, and who has the lock.

use std::fs;
use std::path::Path;

use super::proc::process_of;
use crate::looks::is_one;
use crate::sys::ptrace::read_memory;

/// Calls whose first argument is a descriptor that they wait for.
const ON_FILES: [libc::c_long; 22] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_sendfile,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_connect,
];
/// Calls that wait for a lock on a file.
const LOCK_FILES: [libc::c_long; 2] = [libc::SYS_flock, libc::SYS_fcntl];

/// What the C library writes in the word of a mutex that somebody waits for (`lll_lock` of glibc and of musl).
const CONTENDED: u32 = 2;
/// A thread's number in the word of a futex that lends its priority, beside two bits.
const OWNER: u32 = 0x3FFF_FFFF;

/// The file, the pipe or the socket that a call waits for.
pub(super) fn file(tid: i32, (number, arguments): (u64, [u64; 4])) -> Option<String> {
    if !is_one(number, &ON_FILES) {
        return None;
    }
    let fd = arguments[0] as i32;
    let path = fs::read_link(format!("/proc/{tid}/fd/{fd}")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// The thread, or of a file's lock the process, that has the lock which a call waits for.
pub(super) fn holder(tid: i32, (number, arguments): (u64, [u64; 4])) -> Option<i32> {
    if is_one(number, &LOCK_FILES) {
        let (process, _) = process_of(tid)?;
        return of_file(&fs::read_to_string("/proc/locks").ok()?, process);
    }
    if !is_one(number, &[libc::SYS_futex]) {
        return None;
    }
    let mut words = [0; 20];
    let read = read_memory(tid, arguments[0], &mut words);
    let words: Vec<u32> =
        words[..read].as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let holder = of_word(arguments, &words)?;
    // Another word may look like a mutex; but then what stands there is no thread of the program.
    let is_thread = Path::new(&format!("/proc/{tid}/task/{holder}")).exists();
    (holder != tid && is_thread).then_some(holder)
}

/// Who has the lock that a process waits for, as `/proc/locks` has it: a line for the lock, with its owner, and a line with
/// an arrow for each that waits.
fn of_file(locks: &str, process: i32) -> Option<i32> {
    let fields = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next()?.to_owned();
        let rest: Vec<&str> = fields.collect();
        let waits = rest.first() == Some(&"->");
        let pid = rest.get(if waits { 4 } else { 3 })?.parse::<i32>().ok()?;
        Some((number, waits, pid))
    };
    let lines: Vec<(String, bool, i32)> = locks.lines().filter_map(fields).collect();
    let (number, ..) = lines.iter().find(|(_, waits, pid)| *waits && *pid == process)?;
    let owner = lines.iter().find(|(of, waits, _)| of == number && !waits)?;
    Some(owner.2).filter(|owner| *owner > 0)
}

/// Who has a mutex, by its words and the arguments of the call that waits for it. glibc has the word of the lock, a count, the
/// owner, the number of users, and the kind, in this order.
fn of_word(arguments: [u64; 4], words: &[u32]) -> Option<i32> {
    let operation = arguments[1] as i32 & libc::FUTEX_CMD_MASK;
    let word = *words.first()?;
    if operation == libc::FUTEX_LOCK_PI {
        return Some((word & OWNER) as i32).filter(|owner| *owner > 0);
    }
    let is_mutex = operation == libc::FUTEX_WAIT
        && arguments[2] as u32 == CONTENDED
        && word == CONTENDED
        && *words.get(3)? > 0
        // Plain, recursive, error-checking or adaptive.
        && *words.get(4)? & 0x7F <= 3;
    is_mutex.then(|| words[2] as i32).filter(|owner| *owner > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;

    #[test]
    fn a_mutex_says_who_has_it_and_what_only_looks_like_one_says_nothing() {
        let wait = [0, libc::FUTEX_WAIT as u64 | PRIVATE, 2, 0];
        assert_eq!(of_word(wait, &[2, 0, 77, 1, 0]), Some(77));
        // It is free, or nobody waits for it any more; a word that no mutex stands around; a count that is waited for.
        for words in [[0, 0, 0, 0, 0], [1, 0, 77, 1, 0], [2, 0, 0, 1, 0], [2, 0, 77, 0, 0]] {
            assert_eq!(of_word(wait, &words), None, "{words:?}");
        }
        assert_eq!(of_word(wait, &[2, 0, 77, 1, 0x40]), None);
        assert_eq!(of_word(wait, &[2, 0, 77]), None);
        assert_eq!(of_word([0, wait[1], 5, 0], &[5, 0, 77, 1, 0]), None);
        let bits = [0, libc::FUTEX_WAIT_BITSET as u64 | PRIVATE, 2, 0];
        assert_eq!(of_word(bits, &[2, 0, 77, 1, 0]), None);
        let lends = [0, libc::FUTEX_LOCK_PI as u64 | PRIVATE, 0, 0];
        assert_eq!(of_word(lends, &[0x8000_004D]), Some(77));
    }

    #[test]
    fn a_lock_on_a_file_has_its_owner_in_the_line_that_others_wait_behind() {
        let locks = "\
1: FLOCK  ADVISORY  WRITE 100 fd:01:11 0 EOF
2: POSIX  ADVISORY  WRITE 200 fd:01:12 0 EOF
2: -> POSIX  ADVISORY  WRITE 300 fd:01:12 0 EOF
3: OFDLCK ADVISORY  READ -1 fd:01:13 0 EOF
3: -> FLOCK  ADVISORY  WRITE 400 fd:01:13 0 EOF
nonsense
";
        assert_eq!(of_file(locks, 300), Some(200));
        // It waits for none; the owner has no number; it owns one.
        assert_eq!(
            (of_file(locks, 500), of_file(locks, 400), of_file(locks, 100)),
            (None, None, None)
        );
    }

    #[test]
    fn a_call_on_a_file_names_it_and_others_have_none() {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let file_of = |number: libc::c_long, fd: u64| file(me, (number as u64, [fd, 0, 0, 0]));
        let opened = fs::File::open("/proc/self/status").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&opened) as u64;
        assert!(file_of(libc::SYS_fsync, fd).is_some_and(|path| path.ends_with("/status")));
        assert_eq!((file_of(libc::SYS_futex, fd), file_of(libc::SYS_read, 99_999)), (None, None));
    }
}
