//! Causes that are no single call's.

use super::{MS, call, seen};
use crate::calls::KVM_RUN;
use crate::causes::find;
use crate::record::{Account, Call, Object, Process, Recorder, Sample, Thread, Trace};

/// Cause, beginning and length of each wait that one is found for, in milliseconds.
fn told(trace: &Trace) -> Vec<(String, u64, u64)> {
    let stalls = find(trace).into_iter();
    let told = stalls.map(|one| Some((one.cause?.code, one.at / MS, one.took / MS)));
    told.flatten().collect()
}

fn one(code: &str, at: u64, took: u64) -> Vec<(String, u64, u64)> {
    vec![(code.to_owned(), at, took)]
}

/// Makes a VM at the beginning, on the first thread.
fn create() -> Call {
    call("KVM_CREATE_VM", 0, MS / 10, 0)
}

/// A vCPU's run, by a thread of its own.
fn run(tid: i32, at: u64, took: u64) -> Call {
    let on = Some(Object::Vcpu { vm: 0, id: 0 });
    Call { tid, on, ..call("KVM_RUN", at * MS, took * MS, 0) }
}

fn sleep(tid: i32, at: u64, took: u64) -> Call {
    Call { tid, on: None, ..call("sleep", at * MS, took * MS, 0) }
}

fn runner(tid: i32, ending: Option<u64>) -> Thread {
    let (at, ending) = (5 * MS, ending.map(|at| at * MS));
    Thread { tid, pid: 1, at, ending, gone: ending, vcpu: true, ..Thread::default() }
}

fn trace(calls: Vec<Call>, threads: Vec<Thread>) -> Trace {
    let calls = [create()].into_iter().chain(calls).collect();
    Trace { recorder: Recorder::Tracefs, calls, threads, span: 200 * MS, ..Trace::default() }
}

#[test]
fn a_sleep_goes_on_when_the_last_vcpu_s_thread_has_ended_and_no_other() {
    let sleeps = |tid: i32, slept: u64| {
        let sleep = Call { took: Some(slept * MS / 10), ..sleep(tid, 98, 0) };
        let calls = vec![run(2, 20, 70), run(3, 20, 75), sleep];
        told(&trace(calls, vec![runner(2, Some(100)), runner(3, Some(105))]))
    };
    let polls = |slept| sleeps(1, slept);
    assert_eq!(polls(170), one("polled-join", 105, 10));
    assert!(sleeps(7, 170).is_empty(), "it is not the thread that makes the VM");
    assert!(polls(75).is_empty(), "it goes on for too little to speak of");
    // That the thread has ended may be told before the sleep begins: then it may be one for its own sake, after a join, or not.
    let late = trace(vec![run(2, 20, 70), sleep(1, 98, 17)], vec![runner(2, Some(97))]);
    assert!(told(&late).is_empty());
}

#[test]
fn a_sleep_is_its_own_cause_where_nothing_but_the_vm_s_maker_holds_things_up() {
    let before = |tid, entry| {
        told(&trace(vec![sleep(tid, 10, 30), run(2, entry, 20)], vec![runner(2, None)]))
    };
    // Its vCPU's thread is there already: it may be what is waited for.
    assert!(before(1, 60).is_empty());
    let alone = |tid, entry| {
        let mut thread = runner(2, None);
        thread.at = 45 * MS;
        told(&trace(vec![sleep(tid, 10, 30), run(2, entry, 20)], vec![thread]))
    };
    assert_eq!(alone(1, 60), one("own-sleep", 10, 30));
    assert!(alone(7, 60).is_empty(), "it is not the thread that makes the VM");
    assert!(alone(1, 20).is_empty(), "a vCPU is entered meanwhile");
    let after =
        |ending| told(&trace(vec![run(2, 20, 50), sleep(1, 98, 17)], vec![runner(2, ending)]));
    assert_eq!(after(Some(80)), one("own-sleep", 98, 17));
    assert!(after(Some(130)).is_empty() && after(None).is_empty(), "the thread may be waited for");
}

#[test]
fn a_kick_is_lost_where_the_vcpu_was_in_its_guest_until_another_came() {
    // Signals in tenths of milliseconds.
    let lost = |signals: &[u64], run: Call, samples: Vec<Sample>| {
        let signals = signals.iter().map(|at| (at * MS / 10, 34)).collect();
        let thread = Thread { tid: 2, pid: 1, vcpu: true, signals, ..Thread::default() };
        told(&Trace { samples, ..trace(vec![run], vec![thread]) })
    };
    let interrupted = || Call { result: Some(-i64::from(libc::EINTR)), ..run(2, 2, 30) };
    assert_eq!(lost(&[10, 320], interrupted(), vec![]), one("lost-kick", 1, 31));
    // The same where the kernel says by another number that a signal has ended the run.
    for number in [-512, -514, -516] {
        let begun_again = Call { result: Some(number), ..interrupted() };
        assert_eq!(lost(&[10, 320], begun_again, vec![]), one("lost-kick", 1, 31), "{number}");
    }
    // It came when the vCPU was in, as far as is known; but was it?
    assert!(lost(&[40, 320], interrupted(), vec![]).is_empty());
    let inside = |took: u64| {
        let in_run = Some((libc::SYS_ioctl as u64, [0, KVM_RUN, 0, 0]));
        vec![Sample { tid: 2, at: 5 * MS, took: took * MS, call: in_run, ..Sample::default() }]
    };
    assert_eq!(lost(&[40, 320], interrupted(), inside(20)), one("lost-kick", 4, 28));
    assert!(lost(&[40, 320], interrupted(), inside(10)).is_empty());
    // The first has ended a run, and what went on after it is another one.
    let heard = Call { result: Some(-512), took: Some(MS), ..run(2, 2, 0) };
    assert!(lost(&[31, 320], heard, inside(27)).is_empty());
    // One right after the other ends no wait; and what came long before the vCPU left did not end its run.
    assert!(lost(&[315, 320], interrupted(), inside(20)).is_empty());
    assert!(lost(&[10, 50], run(2, 2, 30), vec![]).is_empty());
}

#[test]
fn a_kick_is_lost_though_another_signal_has_just_ended_the_run_before() {
    let lost = |signals: &[(u64, i32)]| {
        // In tenths of milliseconds.
        let signals = signals.iter().map(|(at, signal)| (at * MS / 10, *signal)).collect();
        let thread = Thread { tid: 2, pid: 1, vcpu: true, signals, ..Thread::default() };
        let interrupted =
            |at, took| Call { result: Some(-i64::from(libc::EINTR)), ..run(2, at, took) };
        told(&trace(vec![interrupted(2, 8), interrupted(26, 274)], vec![thread]))
    };
    assert_eq!(lost(&[(101, 34), (250, 34), (2999, 34)]), one("lost-kick", 25, 274));
    // Whichever signal came first after the run is the one that ended it.
    assert_eq!(lost(&[(101, 10), (250, 34), (2999, 34)]), one("lost-kick", 25, 274));
    assert!(lost(&[(250, 34), (2999, 34)]).is_empty(), "it may have come late");
}

#[test]
fn a_signal_that_lets_all_vcpus_go_is_no_kick_that_was_lost() {
    let runner = |tid, first: u64| {
        let signals = vec![(first * MS, 34), (160 * MS, 34)];
        Thread { tid, pid: 1, vcpu: true, signals, ..Thread::default() }
    };
    let interrupted =
        |tid, at| Call { result: Some(-i64::from(libc::EINTR)), ..run(tid, at, 160 - at) };
    let lost = |other: Thread| {
        told(&trace(vec![interrupted(2, 27), interrupted(3, 28)], vec![runner(2, 26), other]))
    };
    assert_eq!(lost(runner(3, 26)), []);
    // The other one got its first signal long before.
    let early = Thread { signals: vec![(5 * MS, 34), (158 * MS, 34)], ..runner(3, 5) };
    assert_eq!(lost(early)[0].0, "lost-kick");
}

#[test]
fn a_process_s_end_is_from_its_last_thread_s_and_is_what_it_was_seen_at() {
    let end = |stack: &[&str], ran: u64, mebibytes: u64| {
        let thread = |tid, ending: u64| {
            let gone = Some(19 * MS);
            Thread { tid, pid: 1, ending: Some(ending * MS), gone, ..Thread::default() }
        };
        let gone = Some(19 * MS);
        let process =
            Process { pid: 1, gone, resident: Some(mebibytes << 20), ..Process::default() };
        let samples = [Sample { ran: ran * MS, ..seen(6 * MS, 12 * MS, stack) }];
        let threads = vec![thread(1, 2), thread(2, 5)];
        let last = |tid: i32| {
            let samples = samples.iter().map(|one| Sample { tid, ..one.clone() }).collect();
            let processes = vec![process.clone()];
            told(&Trace { processes, samples, ..trace(vec![], threads.clone()) })
        };
        // Whichever thread it was seen at.
        assert_eq!(last(1), last(2));
        last(1)
    };
    assert_eq!(end(&["synchronize_srcu", "kvm_destroy_vm"], 1, 64), one("vm-destruction", 5, 14));
    assert_eq!(end(&["zap_pte_range", "unmap_vmas"], 9, 64), one("memory-freed-at-exit", 5, 14));
    // To wait for an MMU notifier's readers is not to free memory.
    let notifier = ["__synchronize_srcu", "exit_mmap", "__mmput"];
    assert_eq!(end(&notifier, 1, 64), one("vm-destruction", 5, 14));
    assert_eq!(end(&["exit_mmap"], 0, 64), one("memory-freed-at-exit", 5, 14));
    assert!(end(&["schedule"], 0, 64).is_empty());
    assert!(end(&["exit_mmap"], 9, 1).is_empty(), "so little memory takes no time");
}

#[test]
fn a_thread_that_was_long_at_something_before_the_end_is_not_the_one_that_ends_the_process() {
    let thread = |tid, ending: u64, gone: u64| {
        let (ending, gone) = (Some(ending * MS), Some(gone * MS));
        Thread { tid, pid: 1, ending, gone, ..Thread::default() }
    };
    // The second has closed a VM of its own, and was done when all had begun to end.
    let mut closed = Sample { seen: 500, ..seen(0, 5 * MS + MS / 10, &["kvm_destroy_vm"]) };
    closed.tid = 2;
    let process =
        Process { pid: 1, gone: Some(19 * MS), resident: Some(64 << 20), ..Process::default() };
    let threads = vec![thread(1, 5, 19), thread(2, 3, 6)];
    let samples = vec![closed, Sample { ran: 9 * MS, ..seen(6 * MS, 12 * MS, &["exit_mmap"]) }];
    let trace = Trace { processes: vec![process], samples, ..trace(vec![], threads) };
    let stall = find(&trace).remove(0);
    assert_eq!((stall.tid, told(&trace)), (1, one("memory-freed-at-exit", 5, 14)));
}

/// A process that ends at 5 ms, sleeps for so long of the next 14, and is runnable for the rest.
fn ended(slept: u64, held: Vec<usize>) -> Trace {
    let account = |at, queued| Account { tid: 1, at: at * MS, ran: 0, queued: queued * MS };
    let (ending, gone) = (Some(5 * MS), Some(19 * MS));
    let process = Process { pid: 1, gone, held, ..Process::default() };
    let thread = Thread { tid: 1, pid: 1, ending, gone, ..Thread::default() };
    let accounts = vec![account(5, 0), account(5 + slept, 0), account(19, 14 - slept)];
    Trace { processes: vec![process], accounts, ..trace(vec![], vec![thread]) }
}

#[test]
fn an_end_that_nobody_looked_at_is_a_vm_s_where_it_was_open_and_the_thread_slept() {
    let end = |slept: u64, held: Vec<usize>| told(&ended(slept, held));
    assert_eq!(end(9, vec![0]), one("vm-destruction", 5, 14));
    assert_eq!(end(3, vec![0]), one("busy-processor", 5, 14));
    assert!(end(9, vec![]).is_empty());
    // Memory is freed on a processor, so it is not what a thread sleeps for that was once seen to free some.
    let mut frees = ended(9, vec![]);
    frees.processes[0].resident = Some(64 << 20);
    frees.samples = vec![seen(6 * MS, 0, &["exit_mmap"])];
    assert!(told(&frees).is_empty());
    frees.accounts.clear();
    assert_eq!(told(&frees), one("memory-freed-at-exit", 5, 14));
}

#[test]
fn an_end_is_what_its_thread_did_in_the_time_that_others_left_it() {
    // It is runnable for 8 of 14 ms, runs for the rest, and frees memory until it goes on with its VM.
    let account =
        |at, ran, queued| Account { tid: 1, at: at * MS, ran: ran * MS, queued: queued * MS };
    let end = |until: u64, held: Vec<usize>| {
        // Many looks say no more than few, if these are of a longer time.
        let frees = Sample { seen: 9, ..seen(13 * MS, (until - 13) * MS, &["zap_pte_range"]) };
        let mut samples = vec![frees];
        samples.extend((until < 19).then(|| seen((until + 1) * MS, 0, &["kvm_destroy_vm"])));
        let accounts = vec![account(5, 0, 0), account(13, 0, 8), account(19, 6, 8)];
        let mut trace = Trace { samples, accounts, ..ended(0, held) };
        trace.processes[0].resident = Some(64 << 20);
        told(&trace)
    };
    assert_eq!(end(19, vec![]), one("memory-freed-at-exit", 5, 14));
    // Its VM may have had a part in it that was not seen.
    assert_eq!(end(17, vec![0]), one("busy-processor", 5, 14));
    // Of an end in which others had the processor for 27 of 30 ms, the memory is not the cause.
    let mut trace = ended(0, vec![]);
    trace.processes[0].resident = Some(64 << 20);
    trace.processes[0].gone = Some(35 * MS);
    trace.threads[0].gone = Some(35 * MS);
    trace.samples = vec![seen(33 * MS, 2 * MS, &["exit_mmap"])];
    trace.accounts = [(5, 0, 0), (32, 0, 27), (35, 3, 27)]
        .map(|(at, ran, queued)| account(at, ran, queued))
        .to_vec();
    assert_eq!(told(&trace), one("busy-processor", 5, 30));
    // What comes before the first look is as likely what it saw.
    let early = |mut trace: Trace| {
        trace.samples.insert(0, seen(10 * MS, 0, &["kvm_destroy_vm"]));
        told(&trace)
    };
    let mut trace = ended(0, vec![0]);
    trace.samples = vec![seen(17 * MS, MS, &["zap_pte_range"])];
    trace.accounts.clear();
    assert_eq!(early(trace), one("vm-destruction", 5, 14));
}

#[test]
fn an_end_in_which_a_thread_sleeps_in_something_else_is_not_a_vm_s() {
    let mut dumps = ended(9, vec![0]);
    dumps.samples = vec![seen(6 * MS, 8 * MS, &["anon_pipe_write", "do_coredump"])];
    assert!(told(&dumps).is_empty());
}

#[test]
fn freed_memory_is_no_cause_of_an_end_of_which_a_vm_s_wait_may_be_the_most() {
    let end = |ran: u64, held: Vec<usize>| {
        let (ending, gone) = (Some(5 * MS), Some(10 * MS));
        let thread = Thread { tid: 1, pid: 1, ending, gone, ..Thread::default() };
        let resident = Some(64 << 20);
        let process = Process { pid: 1, gone, held, resident, ..Process::default() };
        let samples = vec![Sample { ran: ran * MS, ..seen(6 * MS, 3 * MS, &["exit_mmap"]) }];
        let processes = vec![process];
        // Which knows to a tick for how long a thread ran.
        let recorder = Recorder::Ptrace;
        told(&Trace { recorder, processes, samples, ..trace(vec![], vec![thread]) })
    };
    assert_eq!(end(1, vec![]), one("memory-freed-at-exit", 5, 5));
    assert_eq!(end(3, vec![0]), one("memory-freed-at-exit", 5, 5));
    assert!(end(1, vec![0]).is_empty());
}

#[test]
fn the_part_of_a_vm_that_is_named_is_the_one_that_its_thread_was_seen_in() {
    let mut trace = ended(0, vec![0]);
    trace.accounts.clear();
    let notifier = ["__synchronize_srcu", "mmu_notifier_unregister", "kvm_destroy_vm"];
    trace.samples = vec![
        seen(6 * MS, 2 * MS, &["kthread_stop", "kvm_free_pit", "kvm_destroy_vm"]),
        Sample { seen: 5, ..seen(10 * MS, 5 * MS, &notifier) },
    ];
    let cause = find(&trace).remove(0).cause.expect("it was seen");
    let told =
        ["it was seen in mmu_notifier_unregister", "in 5 of 7 looks it destroyed its MMU notifier"];
    assert_eq!(cause.evidence, told);
}

#[test]
fn what_a_thread_ran_before_it_ended_says_nothing_of_its_end() {
    // QEMU's q35 by SIGTERM, on a busy host. Times are in tenths of milliseconds; the thread begins to end at 400.
    let tenth = MS / 10;
    let account = |at: u64, ran: u64, queued: u64| Account {
        tid: 1,
        at: at * tenth,
        ran: ran * tenth,
        queued: queued * tenth,
    };
    let look = |at: u64, took: u64, stack: &[&str]| seen(at * tenth, took * tenth, stack);
    let (ending, gone) = (Some(400 * tenth), Some(580 * tenth));
    let process =
        Process { pid: 1, gone, held: vec![0], resident: Some(41 << 20), ..Process::default() };
    let thread = Thread { tid: 1, pid: 1, at: 10, ending, gone, ..Thread::default() };
    let trace = Trace {
        processes: vec![process],
        samples: vec![
            Sample { ran: 354 * tenth, ..look(46, 371, &[]) },
            look(428, 24, &["__tlb_batch_free_encoded_pages", "unmap_vmas", "exit_mmap"]),
            look(464, 11, &[]),
            look(487, 12, &["kthread_flush_worker", "kvm_free_pit", "kvm_destroy_vm"]),
            look(511, 23, &["__synchronize_srcu", "mmu_notifier_unregister", "kvm_destroy_vm"]),
            look(546, 23, &["submit_bio_wait", "ext4_evict_inode", "__dentry_kill"]),
        ],
        accounts: vec![
            account(46, 0, 0),
            account(400, 354, 0),
            account(428, 375, 1),
            account(464, 384, 35),
            account(487, 398, 35),
            account(499, 398, 55),
            account(546, 402, 94),
            account(580, 402, 123),
        ],
        ..trace(vec![], vec![thread])
    };
    assert_eq!(told(&trace), one("busy-processor", 40, 18));
}

#[test]
fn of_two_vms_nobody_knows_which_another_process_holds() {
    let held = |more: Vec<Call>| {
        let close = Call { pid: 2, tid: 2, ..call("close", 50 * MS, 0, 0) };
        let maker = Process { pid: 1, gone: Some(20 * MS), ..Process::default() };
        let calls = more.into_iter().chain([close]).collect();
        told(&Trace { processes: vec![maker], ..trace(calls, vec![]) })
    };
    assert_eq!(held(vec![]), one("held-elsewhere", 20, 30));
    assert!(held(vec![create()]).is_empty());
}

#[test]
fn an_image_is_loaded_where_much_is_read_for_long_between_two_calls() {
    let loads = |until: u64, bytes: u64| {
        let mut calls = vec![call("KVM_CREATE_IRQCHIP", MS, MS, 0), call("mmap", until * MS, 0, 0)];
        (calls[0].read, calls[1].read) = (Some(7), Some(7 + bytes));
        told(&trace(calls, vec![]))
    };
    assert_eq!(loads(10, 1 << 20), one("image-loading", 2, 8));
    assert!(loads(10, (1 << 20) - 1).is_empty() && loads(2, 1 << 20).is_empty());
    // To read so little takes a small part of that: for the rest it computes.
    assert_eq!(loads(40, 4 << 20), one("image-loading", 2, 38));
    assert!(loads(40, 3 << 20).is_empty());
}

#[test]
fn what_reads_a_little_and_then_waits_for_something_else_loads_no_image() {
    // It runs for so long of 40 ms, and sleeps on a lock for the rest.
    let loads = |ran: u64| {
        let mut calls = vec![call("KVM_CREATE_IRQCHIP", MS, MS, 0), call("mmap", 42 * MS, 0, 0)];
        (calls[0].read, calls[1].read) = (Some(0), Some(8 << 20));
        let account = |at, ran| Account { tid: 1, at: at * MS, ran: ran * MS, queued: 0 };
        let accounts = vec![account(2, 0), account(2 + ran, ran), account(42, ran)];
        let samples = vec![seen((2 + ran) * MS, (40 - ran) * MS, &["futex_do_wait"])];
        told(&Trace { samples, accounts, ..trace(calls, vec![]) })
    };
    assert_eq!(loads(30), one("image-loading", 2, 40));
    assert!(loads(5).is_empty());
}

#[test]
fn an_image_is_loaded_as_well_where_others_have_the_processor_for_most_of_the_time() {
    // It is runnable for so long of 40 ms, runs for most of the rest, and sleeps then.
    let loads = |queued: u64| {
        let mut calls = vec![call("KVM_CREATE_IRQCHIP", MS, MS, 0), call("mmap", 42 * MS, 0, 0)];
        (calls[0].read, calls[1].read) = (Some(0), Some(2 << 20));
        let ran = (40 - queued) * 3 / 4;
        let account =
            |at, ran, queued| Account { tid: 1, at: at * MS, ran: ran * MS, queued: queued * MS };
        let accounts = vec![
            account(2, 0, 0),
            account(2 + queued, 0, queued),
            account(2 + queued + ran, ran, queued),
            account(42, ran, queued),
        ];
        told(&Trace { accounts, ..trace(calls, vec![]) })
    };
    assert_eq!(loads(30), one("image-loading", 2, 40));
    // What is left is too short to be told of.
    assert!(loads(40).is_empty());
}

#[test]
fn an_image_that_comes_through_a_pipe_waits_for_the_writer() {
    let loads = |asleep: u64, function: &str| {
        let mut calls = vec![call("KVM_CREATE_IRQCHIP", MS, MS, 0), call("mmap", 42 * MS, 0, 0)];
        (calls[0].read, calls[1].read) = (Some(0), Some(64 << 20));
        let samples = vec![seen(5 * MS, asleep * MS, &[function, "vfs_read"])];
        told(&Trace { samples, ..trace(calls, vec![]) })
    };
    assert_eq!(loads(21, "anon_pipe_read"), one("slow-input", 2, 40));
    assert_eq!(loads(21, "unix_stream_read_generic"), one("slow-input", 2, 40));
    // It reads for most of the time; or it is a file that it waits for.
    assert_eq!(loads(15, "anon_pipe_read"), one("image-loading", 2, 40));
    assert_eq!(loads(21, "folio_wait_bit_common"), one("image-loading", 2, 40));
}

#[test]
fn a_fault_is_a_vcpu_s_where_its_thread_was_in_the_guest_and_else_the_program_s() {
    let in_run = Some((libc::SYS_ioctl as u64, [0, KVM_RUN, 0, 0]));
    let waits = |took: u64, in_call: Option<(u64, [u64; 4])>, calls: Vec<Call>, pid: i32| {
        let thread = Thread { pid, ..runner(1, None) };
        let sample = Sample { call: in_call, ..seen(8 * MS, took * MS, &["handle_userfault"]) };
        find(&Trace { samples: vec![sample], ..trace(calls, vec![thread]) })
    };
    let whose = |in_call, calls| {
        let stalls = waits(9, in_call, calls, 1);
        assert_eq!(stalls[0].cause.as_ref().unwrap().code, "userfault");
        (stalls[0].what.clone(), stalls[0].at / MS, stalls[0].took / MS)
    };
    let guest = ("a vCPU's fault".to_owned(), 8, 9);
    let own = ("a fault of the program itself".to_owned(), 8, 9);
    assert_eq!(whose(in_run, vec![]), guest);
    assert_eq!(whose(None, vec![run(1, 6, 11)]), guest);
    // The thread runs a vCPU later, has left it, or is in another call.
    assert_eq!(whose(None, vec![run(1, 0, 1), run(1, 17, 0)]), own);
    assert_eq!(whose(None, vec![run(1, 6, 1)]), own);
    assert_eq!(whose(Some((libc::SYS_read as u64, [0; 4])), vec![]), own);
    assert!(waits(0, in_run, vec![], 1).is_empty(), "it is short");
    assert!(waits(9, in_run, vec![], 2).is_empty(), "it is another process");
}

#[test]
fn vcpus_are_one_by_one_where_one_thread_makes_eight_or_more() {
    let makes = |count: u64, last_by: i32| {
        let mut calls: Vec<Call> =
            (1..=count).map(|at| call("KVM_CREATE_VCPU", at * MS, MS / 2, 0)).collect();
        calls.last_mut().unwrap().tid = last_by;
        told(&trace(calls, vec![]))
    };
    assert_eq!(makes(8, 1), one("vcpus-one-by-one", 1, 4));
    assert!(makes(7, 1).is_empty() && makes(8, 2).is_empty());
}
