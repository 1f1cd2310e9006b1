//! How the time of a path was spent, and what threads do that end.

use super::{MS, told, trace, wake};
use crate::path::{CriticalPath, Doing, Piece};
use crate::record::{Account, Sample, Thread};
use crate::spent::Spent;

#[test]
fn time_in_which_a_thread_did_not_run_is_not_called_its_own_code() {
    // The first thread sleeps in a file from 30 to 38, and is on a processor for a millisecond of what is left.
    let account =
        |at, ran, queued| Account { tid: 1, at: at * MS, ran: ran * MS, queued: queued * MS };
    let look = Sample {
        tid: 1,
        at: 31 * MS,
        took: 6 * MS,
        seen: 3,
        call: Some((libc::SYS_pread64 as u64, [0; 4])),
        ..Sample::default()
    };
    let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
    one.accounts =
        vec![account(0, 0, 0), account(30, 30, 0), account(38, 30, 0), account(40, 31, 1)];
    one.samples = vec![look];
    one.critical_paths = one.find_critical_paths();
    let pieces = &one.critical_paths[0].pieces;
    let piece = pieces.iter().find(|piece| piece.at == 30 * MS).unwrap();
    assert_eq!((&piece.doing, piece.took), (&Doing::Off, 10 * MS));
    let spent = piece.spent.unwrap();
    assert_eq!((spent.ran, spent.queued, spent.file), (MS, MS, 8 * MS));
    let said = piece.to_string();
    assert_eq!(
        said,
        "its own code for 1.00 ms, runnable 1.00 ms, in files, pipes and sockets 8.00 ms"
    );
    let small = Spent { ran: 92, queued: 4, slept: 4, ..Spent::default() };
    assert_eq!(Piece { spent: Some(small), ..piece.clone() }.to_string(), Doing::Off.to_string());
    // Of what ran all the time there is no more to say.
    assert_eq!(
        (pieces[0].doing.clone(), pieces[0].to_string()),
        (Doing::Own, "its own code".into())
    );
}

#[test]
fn what_a_thread_does_when_it_has_begun_to_end_is_not_its_own_code() {
    let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
    one.threads[0].ending = Some(170 * MS);
    (one.threads[2].ending, one.threads[2].gone) = (Some(160 * MS), Some(161 * MS));
    one.critical_paths = one.find_critical_paths();
    let ends = || Doing::Ends(String::new());
    assert_eq!(told(&one.critical_paths[1]), [(1, 150, 19, Doing::Own), (1, 170, 30, ends())]);
    // Its registers are those of its last call: it waits for no lock, and makes no call.
    one.samples = vec![Sample {
        tid: 1,
        at: 175 * MS,
        took: 20 * MS,
        seen: 9,
        call: Some((libc::SYS_futex as u64, [0; 4])),
        stack: vec!["kthread_stop".into(), "kvm_free_pit".into()],
        ..Sample::default()
    }];
    one.forget_inherited_calls();
    assert_eq!(one.samples[0].call, None);
    one.critical_paths = one.find_critical_paths();
    let ends = Doing::Ends("kthread_stop".into());
    assert_eq!(told(&one.critical_paths[1])[1], (1, 170, 30, ends));
}

#[test]
fn a_worker_of_kvm_s_that_nobody_follows_ends_when_it_was_last_seen() {
    let mut one = trace(vec![], vec![]);
    let look = |at| Sample { tid: 9, at: at * MS, took: 5 * MS, ..Sample::default() };
    one.samples = vec![look(180), look(190)];
    let worker = |tid| Thread { tid, pid: 1, at: 170 * MS, of_kvm: true, ..Thread::default() };
    one.threads.extend([worker(9), worker(10)]);
    one.know_workers();
    assert_eq!((one.threads[3].gone, one.threads[4].gone), (Some(195 * MS), None));
    // Of a process that ran before, a worker is known by where it waits.
    one.attached = true;
    one.samples.push(Sample { tid: 3, channel: Some("vhost_task_fn".into()), ..Sample::default() });
    one.know_workers();
    assert!(one.threads[2].of_kvm && !one.threads[1].of_kvm);
}

#[test]
fn what_a_thread_was_seen_in_before_does_not_hide_what_it_waits_in() {
    // It slept for long, and ends in one part of a VM after another.
    let look = |at, took, seen, stack: &[&str]| Sample {
        tid: 1,
        at: at * MS,
        took: took * MS,
        seen,
        stack: stack.iter().map(|name| (*name).to_owned()).collect(),
        ..Sample::default()
    };
    let mut one = trace(vec![], vec![wake(3, 5, 190, None)]);
    one.samples = vec![
        look(51, 101, 90, &["hrtimer_nanosleep", "do_syscall_64"]),
        look(155, 12, 4, &["__synchronize_srcu", "kvm_free_pit", "kvm_destroy_vm", "do_exit"]),
        look(168, 12, 4, &["kthread_stop", "kvm_free_pit", "kvm_destroy_vm", "do_exit"]),
        look(
            181,
            15,
            3,
            &["__synchronize_srcu", "mmu_notifier_unregister", "kvm_destroy_vm", "do_exit"],
        ),
    ];
    one.critical_paths = one.find_critical_paths();
    let waits = |path: &CriticalPath| {
        let doing = path.pieces.iter().map(|piece| piece.doing.clone());
        doing.filter(|doing| matches!(doing, Doing::Waits(_))).collect::<Vec<_>>()
    };
    // Twice in the one function is more than half; and else the innermost that it stayed in.
    assert_eq!(waits(&one.critical_paths[1]), [Doing::Waits("__synchronize_srcu".into())]);
    one.samples[1].stack[0] = "kthread_flush_worker".into();
    one.critical_paths = one.find_critical_paths();
    assert_eq!(waits(&one.critical_paths[1]), [Doing::Waits("kvm_free_pit".into())]);
}
