//! Causes of sleeps that are no call of the record.

use super::{MS, call};
use crate::causes::of_sleep;
use crate::path::Held;
use crate::record::{Sample, Trace};

/// The cause of a sleep of 30 ms of the first thread, and its evidence.
fn cause(trace: &Trace, of_vcpu: bool, seen: &Sample) -> Option<(String, Vec<String>)> {
    let (from, to, what) = (10 * MS, 40 * MS, String::new());
    let seen = Some(seen);
    let (took, times) = (to - from, 1);
    let held =
        Held { tid: 1, from, to, took, times, seen, of_vcpu, touched: None, what, known: vec![] };
    of_sleep(trace, &held).map(|cause| (cause.code, cause.evidence))
}

fn look(number: libc::c_long, file: Option<&str>, channel: &str) -> Sample {
    Sample {
        tid: 1,
        at: 11 * MS,
        took: 28 * MS,
        seen: 20,
        call: Some((number as u64, [3; 4])),
        file: file.map(str::to_owned),
        channel: Some(channel.to_owned()),
        ..Sample::default()
    }
}

#[test]
fn a_lock_s_holder_is_named_where_the_lock_says_it_with_what_it_did() {
    let held = |number, holder| Sample { holder, ..look(number, None, "somewhere") };
    let mut trace = Trace::default();
    let mut maps = call("mmap", 5 * MS, 33 * MS, 0);
    maps.tid = 9;
    trace.calls.push(maps);
    let (code, evidence) = cause(&trace, false, &held(libc::SYS_futex, Some(9))).unwrap();
    assert_eq!(code, "lock-contention");
    let said = "the lock says that thread 9 has it, which was in mmap for 28.0 ms of it";
    assert_eq!(evidence, [said, "thread 1 slept 30.0 ms for it"]);
    let (_, evidence) = cause(&trace, false, &held(libc::SYS_flock, Some(8))).unwrap();
    assert_eq!(evidence[0], "the lock says that process 8 has it");
    // The lock says nothing, or names who waits; what waits is no lock.
    assert_eq!(cause(&trace, false, &held(libc::SYS_futex, None)), None);
    assert_eq!(cause(&trace, false, &held(libc::SYS_futex, Some(1))), None);
    assert_eq!(cause(&trace, false, &held(libc::SYS_read, Some(9))), None);
}

#[test]
fn a_vcpu_s_thread_blocks_in_what_waits_for_a_device_and_not_where_it_may_be_paused() {
    let named = |of_vcpu, number, file, channel| {
        let found = cause(&Trace::default(), of_vcpu, &look(number, file, channel));
        found.is_some_and(|(code, _)| code == "blocking-io")
    };
    assert!(named(true, libc::SYS_fsync, None, "jbd2_log_wait_commit"));
    assert!(named(true, libc::SYS_write, Some("pipe:[7]"), "pipe_write"));
    assert!(named(true, libc::SYS_pread64, Some("/disk.img"), "folio_wait_bit_common"));
    for (of_vcpu, number, file, channel) in [
        (false, libc::SYS_fsync, Some("/disk.img"), "jbd2_log_wait_commit"),
        (true, libc::SYS_read, Some("pipe:[7]"), "pipe_read"),
        (true, libc::SYS_read, Some("/run/fifo"), "fifo_pipe_read"),
        (true, libc::SYS_read, Some("anon_inode:[eventfd]"), "eventfd_read"),
        (true, libc::SYS_read, Some("/dev/tty"), "n_tty_read"),
        (true, libc::SYS_read, None, "somewhere"),
        (true, libc::SYS_futex, None, "futex_do_wait"),
    ] {
        assert!(!named(of_vcpu, number, file, channel), "{number} {file:?}");
    }
}
