use super::*;
use crate::record::{Account, Life, Object, Process, Recorder, Thread};

const MS: u64 = 1_000_000;

fn call(tid: i32, name: &str, at: u64, took: u64) -> Call {
    let (at, took, on) = (at * MS, Some(took * MS), Some(Object::Vcpu { vm: 0, id: 0 }));
    Call { tid, pid: 1, at, took, name: name.into(), on, result: Some(0), ..Call::default() }
}

/// A thread was seen to sleep in a call, in a function of the kernel.
fn look(tid: i32, number: libc::c_long, function: &str, at: u64, took: u64) -> Sample {
    Sample {
        tid,
        at: at * MS,
        took: took * MS,
        seen: 2 + took,
        call: Some((number as u64, [3; 4])),
        channel: Some(function.to_owned()),
        ..Sample::default()
    }
}

/// The program's first thread creates a VM at 10 ms, and a second thread at 90, which runs the vCPU from 100 to 110 ms, and
/// again from 190 to 200. All is over at 230 ms. The scheduler has told of nothing but what the threads had of the processors:
/// nothing, but for a part of the second's time.
fn trace(samples: Vec<Sample>) -> Trace {
    let thread = |tid, at, gone| Thread {
        tid,
        pid: 1,
        maker: (tid > 1).then_some(1),
        at: at * MS,
        ending: Some(gone * MS - 1),
        gone: Some(gone * MS),
        vcpu: tid == 2,
        ..Thread::default()
    };
    let account = |tid, at, ran| Account { tid, at: at * MS, ran: ran * MS, queued: 0 };
    let executed = vec![(MS, "/vmm".to_owned())];
    let process = Process { pid: 1, gone: Some(230 * MS), executed, ..Process::default() };
    let mut created = call(1, "KVM_CREATE_VM", 10, 0);
    created.arguments = [("vm".to_owned(), 0)].into();
    let mut trace = Trace {
        span: 230 * MS,
        recorder: Recorder::Ptrace,
        processes: vec![process],
        threads: vec![thread(1, 0, 230), thread(2, 90, 210), thread(3, 5, 205)],
        calls: vec![created, call(2, "KVM_RUN", 100, 10), call(2, "KVM_RUN", 190, 10)],
        accounts: vec![
            account(1, 0, 0),
            account(1, 230, 0),
            account(2, 90, 0),
            account(2, 120, 30),
            account(2, 180, 30),
            account(2, 210, 60),
            account(3, 5, 0),
            account(3, 205, 0),
        ],
        samples,
        ..Trace::default()
    };
    trace.phases = trace.find_phases();
    trace.critical_paths = trace.find_critical_paths();
    trace
}

/// Thread, what, beginning and length in milliseconds of each wait.
fn told(trace: &Trace) -> Vec<(i32, String, u64, u64)> {
    let stalls = trace.find_stalls().into_iter();
    stalls.map(|one| (one.tid, one.what, one.at / MS, one.took / MS)).collect()
}

#[test]
fn what_the_start_hangs_on_is_listed_whatever_call_it_is() {
    for (number, name) in [
        (libc::SYS_futex, "futex"),
        (libc::SYS_flock, "flock"),
        (libc::SYS_wait4, "wait4"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_fsync, "fsync"),
        (9999, "system call 9999"),
    ] {
        let one = trace(vec![look(1, number, "somewhere", 40, 30)]);
        let stalls = one.find_stalls();
        assert_eq!(stalls[0].what, name);
        assert_eq!((stalls[0].tid, stalls[0].took >= 30 * MS), (1, true), "{stalls:?}");
        assert!(stalls[0].cause.is_none() && stalls[0].known[0] == "it slept in somewhere");
    }
}

#[test]
fn a_thread_on_which_nothing_hangs_waits_for_work() {
    // The third thread sleeps all the time, and nobody waits for it.
    assert_eq!(told(&trace(vec![look(3, libc::SYS_ppoll, "poll", 6, 190)])), []);
    // The first one joins the vCPU's thread, while that runs.
    assert_eq!(told(&trace(vec![look(1, libc::SYS_futex, "futex_do_wait", 101, 98)])), []);
}

#[test]
fn the_scheduler_s_events_say_how_long_it_was_and_who_ended_it() {
    let mut one = trace(vec![look(1, libc::SYS_futex, "futex_do_wait", 45, 20)]);
    one.recorder = Recorder::Tracefs;
    one.wakes = vec![Wake { tid: 1, since: 41 * MS, at: 71 * MS, by: Some(3) }];
    one.critical_paths = one.find_critical_paths();
    let stalls = one.find_stalls();
    let stall = stalls.iter().find(|stall| stall.what == "futex").unwrap();
    assert_eq!((stall.tid, stall.at / MS, stall.took / MS), (1, 41, 30));
    // The third one, which ended it, had nothing of the processors.
    let ended = "thread 3 ended it, which meanwhile ran 0 ns, asleep 30.0 ms";
    assert_eq!(stall.known, ["it slept in futex_do_wait", ended]);
    // One that nobody has looked at is listed as well.
    one.wakes.push(Wake { tid: 1, since: 74 * MS, at: 86 * MS, by: None });
    one.critical_paths = one.find_critical_paths();
    let told = told(&one);
    assert!(told.contains(&(1, "asleep".to_owned(), 74, 12)), "{told:?}");
    one.wakes.pop();
    // One that nobody of the program's ended has nobody's name.
    one.wakes[0].by = Some(77);
    one.critical_paths = one.find_critical_paths();
    let stalls = one.find_stalls();
    assert_eq!(stalls[0].known, ["it slept in futex_do_wait"]);
}

#[test]
fn a_vcpu_that_does_not_get_on_between_its_runs_is_listed_and_one_that_may_halt_is_not() {
    let waits = |number, controller: bool| {
        let mut one = trace(vec![look(2, number, "somewhere", 130, 40)]);
        let irqchip = call(1, "KVM_CREATE_IRQCHIP", 12, 0);
        if controller {
            one.calls.insert(1, irqchip);
        }
        told(&one).into_iter().map(|(tid, what, ..)| (tid, what)).collect::<Vec<_>>()
    };
    let one = |what: &str| vec![(2, what.to_owned())];
    assert_eq!(waits(libc::SYS_fsync, false), one("fsync"));
    assert_eq!(waits(libc::SYS_futex, true), one("futex"));
    // Where the program has the interrupt controller, its guest may halt there.
    assert_eq!(waits(libc::SYS_futex, false), []);
}

#[test]
fn what_a_call_of_the_record_or_its_own_wait_has_is_not_listed_again() {
    // It is in the call that creates the VM.
    let mut one = trace(vec![look(1, libc::SYS_ioctl, "somewhere", 12, 30)]);
    one.calls[0].took = Some(40 * MS);
    assert_eq!(told(&one).len(), 1);
    // A sleep that it asks for, by the thread that creates the VM, has a cause of its own.
    let mut one = trace(vec![look(1, libc::SYS_clock_nanosleep, "hrtimer_nanosleep", 41, 28)]);
    let mut sleep = call(1, "sleep", 40, 30);
    sleep.arguments = [("time".to_owned(), 30 * MS)].into();
    one.calls.insert(1, sleep);
    let stalls = one.find_stalls();
    assert_eq!(stalls.len(), 1);
    assert_eq!(stalls[0].cause.as_ref().unwrap().code, "own-sleep");
}

#[test]
fn short_sleeps_and_a_thread_that_runs_are_none() {
    assert_eq!(told(&trace(vec![])), []);
    // It is seen in one call for long, and ran for all but a millisecond of it.
    let mut one = trace(vec![look(1, libc::SYS_read, "vfs_read", 40, 30)]);
    let account = |at, ran| Account { tid: 1, at: at * MS, ran: ran * MS, queued: 0 };
    one.accounts.retain(|account| account.tid != 1);
    one.accounts.extend([account(0, 0), account(20, 20), account(90, 89), account(230, 229)]);
    assert_eq!(told(&one), []);
}

#[test]
fn a_page_that_comes_late_and_a_signal_that_stops_are_called_so() {
    let what = |call, stack: &[&str]| {
        let stack = stack.iter().map(|name| (*name).to_owned()).collect();
        let sample = Sample { call, stack, ..look(1, 0, "io_schedule", 40, 30) };
        told(&trace(vec![sample]))[0].1.clone()
    };
    assert_eq!(what(None, &["filemap_fault", "handle_mm_fault"]), "a page fault");
    assert_eq!(what(Some((0, [0; 4])), &["do_signal_stop"]), "stopped by a signal");
    assert_eq!(what(None, &[]), "asleep in io_schedule");
}

#[test]
fn memory_that_is_touched_for_the_first_time_is_listed_where_the_kernel_had_most_of_the_time() {
    let touches = |faults: u64, system: u64| {
        let looks = [(40, 5), (46, 20), (67, 13)].map(|(at, took)| Sample {
            stack: vec![format!("older_{at}")],
            faults: faults / 3,
            system: system * MS / 3,
            call: None,
            channel: None,
            ..look(1, 0, "", at, took)
        });
        let mut one = trace(looks.to_vec());
        let account = |at, ran| Account { tid: 1, at: at * MS, ran: ran * MS, queued: 0 };
        one.accounts.retain(|account| account.tid != 1);
        one.accounts.extend([account(0, 0), account(230, 230)]);
        let stalls = one.find_stalls().into_iter();
        stalls.map(|one| (one.at / MS, one.took / MS, one.cause.unwrap().code)).collect::<Vec<_>>()
    };
    assert_eq!(touches(9000, 30), [(40, 40, "first-touch".to_owned())]);
    // Few faults; its own code has most of the time; each fault takes too long to be one.
    assert_eq!((touches(30, 30), touches(9000, 12), touches(66, 90)), (vec![], vec![], vec![]));
}

#[test]
fn memory_that_a_vcpu_s_thread_touches_is_listed_without_its_guest_s_time() {
    // From 120 on it runs its guest, for which the kernel is busy, too; then its own code touches memory.
    let touches = |guest: u64, own: u64| {
        let look = |at: u64, took: u64, faults: u64| Sample {
            faults,
            system: took * MS,
            call: None,
            channel: None,
            ..look(2, 0, "", at, took)
        };
        let mut looks = vec![look(120, guest, 0), look(121 + guest, own, 9000)];
        looks.retain(|one| one.took > 0);
        let mut one = trace(looks);
        one.calls.push(call(1, "KVM_CREATE_IRQCHIP", 12, 0));
        let account = |at, ran| Account { tid: 2, at: at * MS, ran: ran * MS, queued: 0 };
        one.accounts.retain(|account| account.tid != 2);
        one.accounts.extend([account(90, 0), account(210, 120)]);
        let stalls = one.find_stalls().into_iter();
        stalls.map(|one| (one.at / MS, one.took / MS, one.cause.unwrap().code)).collect::<Vec<_>>()
    };
    assert_eq!(touches(25, 40), [(146, 40, "first-touch".to_owned())]);
    assert_eq!(touches(0, 40), [(121, 40, "first-touch".to_owned())]);
    assert_eq!(touches(60, 0), []);
}

/// A first thread that was seen in one call for 30 ms, in which it got a processor so often.
fn again_and_again(number: libc::c_long, turns: u64) -> Trace {
    trace(vec![Sample { turns, ..look(1, number, "somewhere", 40, 30) }])
}

#[test]
fn a_thread_that_got_a_processor_between_equal_looks_slept_many_times() {
    let reads = again_and_again(libc::SYS_read, 39).find_stalls();
    let stall = &reads[0];
    assert_eq!((&stall.what[..], stall.took >= 30 * MS), ("read, 40 times", true), "{stall:?}");
    // That it got a processor may have had other reasons.
    assert!(stall.known[1].starts_with("in up to 40 sleeps, on average "), "{stall:?}");
    // Two or three may each be as long as a wait.
    let once = again_and_again(libc::SYS_read, 2).find_stalls();
    assert_eq!(once[0].what, "read");
}

#[test]
fn many_short_sleeps_that_a_program_asks_for_are_counted_by_its_calls() {
    let mut one = again_and_again(libc::SYS_clock_nanosleep, 60);
    for number in 0..20 {
        let mut sleep = call(1, "sleep", 0, 0);
        (sleep.at, sleep.took) = ((40 + number) * MS + MS * number / 2, Some(MS - 1));
        one.calls.insert(1, sleep);
    }
    one.calls.sort_by_key(|call| call.at);
    let stalls = one.find_stalls();
    assert_eq!(stalls[0].what, "sleep, 20 times", "{stalls:?}");
    assert_eq!(stalls[0].cause.as_ref().unwrap().code, "own-sleep");
}

#[test]
fn short_sleeps_that_the_scheduler_told_of_are_one_wait_and_a_worker_that_waits_for_work_is_none() {
    let mut one = trace(vec![look(1, libc::SYS_fsync, "jbd2_log_wait_commit", 50, 0)]);
    one.recorder = Recorder::Tracefs;
    one.wakes = (0..20)
        .map(|number| {
            let since = (40 + number) * MS;
            Wake { tid: 1, since, at: since + MS / 2, by: None }
        })
        .collect();
    one.critical_paths = one.find_critical_paths();
    let stalls = one.find_stalls();
    assert_eq!((&stalls[0].what[..], stalls[0].took), ("fsync, 20 times", 10 * MS), "{stalls:?}");
    // Each is as long as was told, and not as the time between the first and the last.
    assert_eq!(stalls[0].known[1], "in 20 sleeps, on average 500 us each");
    let mut idle = trace(vec![look(1, 0, "vhost_task_fn", 40, 30)]);
    idle.samples[0].call = None;
    assert_eq!(told(&idle), []);
    // Of one that nobody has looked at, it is known what it is.
    let mut unseen = trace(vec![]);
    unseen.recorder = Recorder::Tracefs;
    unseen.wakes = vec![
        Wake { tid: 2, since: 95 * MS, at: 99 * MS, by: Some(3) },
        Wake { tid: 3, since: 50 * MS, at: 98 * MS, by: Some(1) },
    ];
    unseen.critical_paths = unseen.find_critical_paths();
    let of_third = |trace: &Trace| told(trace).into_iter().filter(|one| one.0 == 3).count();
    assert_eq!(of_third(&unseen), 1);
    unseen.threads[2].works_as("kvm-nx-lpage-re".to_owned());
    assert_eq!(of_third(&unseen), 0);
    // Another part of the kernel's may do what is waited for.
    unseen.threads[2].works_as("iou-wrk-1".to_owned());
    assert_eq!(of_third(&unseen), 1);
}

#[test]
fn short_sleeps_on_the_paths_of_several_vms_are_listed_once() {
    let mut one = trace(vec![]);
    one.recorder = Recorder::Tracefs;
    one.wakes = (0..20)
        .map(|number| (40 + number) * MS)
        .map(|since| Wake { tid: 1, since, at: since + MS / 2, by: None })
        .collect();
    one.critical_paths = one.find_critical_paths();
    let alone = told(&one);
    assert_eq!(alone.len(), 1, "{alone:?}");
    let path = one.critical_paths[0].clone();
    one.lives = (0..2)
        .map(|vm| Life { vm, critical_paths: vec![path.clone()], ..Life::default() })
        .collect();
    assert_eq!(told(&one), alone);
}

#[test]
fn a_guest_s_exits_that_are_written_one_by_one_are_one_wait_of_its_vcpu() {
    let looks = (0..16).map(|number| {
        let at = 120 + 2 * number;
        Sample { file: Some("/journal".into()), ..look(2, libc::SYS_fsync, "somewhere", at, 0) }
    });
    let between = (0..16).map(|number| {
        let call = Some((libc::SYS_ioctl as u64, [9, 0xAE80, 0, 0]));
        let at = (120 + 2 * number) * MS + MS / 3;
        Sample { call, channel: None, at, took: MS * 4 / 3, ..look(2, 0, "", 0, 2) }
    });
    let mut samples: Vec<Sample> = looks.chain(between).collect();
    samples.sort_by_key(|one| one.at);
    let stalls = trace(samples).find_stalls();
    assert_eq!((&stalls[0].what[..], stalls[0].tid), ("fsync, 16 times", 2), "{stalls:?}");
    assert_eq!(stalls[0].cause.as_ref().unwrap().code, "blocking-io");
}

#[test]
fn a_process_that_a_signal_stops_is_listed_until_another_lets_it_go_on() {
    let stopped = |signals: &[(u64, i32)]| {
        let mut one = trace(vec![]);
        one.threads[0].signals = signals.iter().map(|(at, signal)| (at * MS, *signal)).collect();
        told(&one)
    };
    let (stop, go) = (libc::SIGSTOP, libc::SIGCONT);
    let what = "stopped by a signal".to_owned();
    assert_eq!(stopped(&[(40, stop), (75, go), (80, go)]), [(1, what, 40, 35)]);
    // It never went on, or was not stopped; and what a program may catch stops nobody for certain.
    assert_eq!(stopped(&[(40, stop)]), []);
    assert_eq!(stopped(&[(40, libc::SIGTSTP), (75, go)]), []);
}

#[test]
fn by_ptrace_what_holds_up_the_calls_that_set_a_vm_up_is_listed_though_no_path_leads_there() {
    // The vCPU's thread is there from 20 ms on, and is seen to wait for nobody: the path to its first run is its own.
    let listed = |last_call: u64| {
        let mut one = trace(vec![look(1, libc::SYS_flock, "somewhere", 40, 30)]);
        one.threads[1].at = 20 * MS;
        one.calls.insert(1, call(1, "KVM_SET_USER_MEMORY_REGION", last_call, 0));
        one.critical_paths = one.find_critical_paths();
        told(&one).into_iter().map(|(tid, what, ..)| (tid, what)).collect::<Vec<_>>()
    };
    assert!(listed(80).contains(&(1, "flock".to_owned())));
    // It does nothing for the VM after that.
    assert!(!listed(30).contains(&(1, "flock".to_owned())));
}
