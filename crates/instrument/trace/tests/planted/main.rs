//! The recorder, held against a VMM that writes down what it calls.

mod gain;
mod open;
mod path;
mod real;
mod score;
mod waits;
mod whole;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mayfly_record::Host;
use mayfly_trace::{
    Call, Choice, End, Error, Launch, Output, Recorder, Trace, Verdict, prove, record_by,
};

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("every_call_is_recorded_as_the_program_has_written_it_down", every_call),
    ("tracefs_tells_the_same_calls_as_the_program", every_call_by_events),
    ("a_vcpu_s_first_run_is_seen_and_later_ones_stop_nobody", first_run_alone),
    ("phases_follow_the_order_of_the_program_and_leave_nothing_out", phases),
    ("a_process_is_gone_when_its_vm_is_whoever_destroys_it", gone_with_its_vm),
    ("the_phases_of_a_program_are_all_of_its_time_by_every_recorder", whole::of_a_program),
    (
        "what_a_program_leaves_behind_is_a_phase_of_its_own",
        whole::of_a_program_that_leaves_another_behind,
    ),
    ("the_phases_of_a_process_that_runs_are_all_of_its_time", whole::of_a_process_that_runs),
    (
        "a_vm_that_outlives_its_process_is_a_line_of_its_own",
        whole::of_a_vm_that_outlives_its_process,
    ),
    (
        "the_start_of_a_program_that_waits_for_a_client_is_from_its_request_on",
        whole::start_after_a_request,
    ),
    (
        "the_start_is_from_when_a_file_is_written_to_that_the_user_names",
        whole::start_after_a_marker,
    ),
    ("the_start_is_from_when_the_program_comes_to_a_probe_of_its_own", whole::start_after_a_probe),
    ("a_call_that_is_held_back_begins_later_and_takes_no_longer", held_back),
    ("a_grace_period_is_proved_by_its_passing", proof),
    ("devices_before_memory_cost_what_the_better_order_gains", gain::devices_first),
    ("where_memory_comes_first_no_gain_is_claimed", gain::memory_first),
    ("a_call_that_fails_in_the_replay_is_named", gain::failing_call),
    ("what_the_start_hung_on_leads_from_the_first_thread_to_the_vcpu_s", path::of_two_threads),
    ("who_woke_the_thread_that_joined_is_seen_by_tracefs", path::joined),
    ("a_wait_that_is_no_call_to_kvm_is_listed_with_what_is_known_of_it", waits::of_any_kind),
    ("many_short_sleeps_are_listed_as_one_wait", real::many_short_sleeps),
    ("many_short_waits_for_another_thread_are_listed", real::turns_with_another_thread),
    ("a_process_that_a_signal_stops_is_listed", real::a_signal_that_stops),
    ("a_call_that_waits_for_its_answer_is_listed", real::a_call_that_another_answers),
    ("a_vcpu_s_thread_that_writes_at_each_exit_is_named", real::a_journal_of_exits),
    ("pages_that_come_one_by_one_are_named_together", real::pages_one_by_one),
    ("a_vm_of_a_process_with_many_mappings_is_named", real::many_mappings),
    ("a_dirty_log_that_starts_is_named", real::a_dirty_log),
    (
        "a_vm_that_is_closed_right_after_its_creation_has_no_wrong_name",
        real::a_vm_that_is_only_asked,
    ),
    ("memory_that_is_touched_for_the_first_time_is_named", real::memory_that_is_new),
    (
        "memory_that_a_guest_touches_is_not_its_vcpu_s_thread_s_own",
        real::memory_that_a_guest_touches,
    ),
    ("a_program_that_reads_little_and_computes_loads_no_image", real::little_that_is_read),
    ("a_guest_that_keeps_its_processor_was_left_when_it_was", real::a_guest_that_computes),
    ("a_limit_of_processor_time_is_named", real::a_limit_of_processor_time),
    ("a_limit_of_memory_is_named", real::a_limit_of_memory),
    ("a_large_slot_is_named_where_it_is_a_wait_on_this_host", large_slot),
    ("causes_that_are_planted_are_found_and_no_others", score::score),
    ("waits_that_programs_know_of_are_told_from_others", open::judges),
    ("waits_of_programs_that_are_drawn_are_listed", open::score),
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/kvm") {
        println!("not run: /dev/kvm: {error}");
        return;
    }
    let tests = TESTS.iter().filter(|(name, _)| {
        wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
    });
    for (name, test) in tests {
        println!("test {name}");
        test();
    }
}

/// The VMM, which is built beside the tests.
fn planted() -> PathBuf {
    built("planted")
}

/// A program that is built beside the tests.
fn built(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap();
    let program = built.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is missing: cargo test builds it with all targets",
        program.display()
    );
    program
}

fn launch(arguments: &[&str]) -> Launch {
    launch_of(planted(), arguments)
}

fn launch_of(program: PathBuf, arguments: &[&str]) -> Launch {
    let mut command: Vec<OsString> = vec![program.into()];
    command.extend(arguments.iter().map(OsString::from));
    Launch { command, output: Output::Null, ..Launch::default() }
}

fn traced(launch: &Launch) -> Trace {
    traced_by(Choice::Ptrace, launch).unwrap()
}

fn traced_by(choice: Choice, launch: &Launch) -> Result<Trace, Error> {
    let recorded = record_by(choice, launch, &mut |line| panic!("{line}"))?;
    assert_eq!(recorded.trace.end, Some(End::Code(0)));
    Ok(recorded.trace.concluded(Host::gather(["test".to_owned()])))
}

/// KVM's calls but runs, and what opens and closes descriptors of its.
fn told(call: &Call) -> Option<String> {
    let fd = call.fd.unwrap_or(-1);
    let result = call.result?;
    match call.name.as_str() {
        "open" => Some(format!("open /dev/kvm {result}")),
        "KVM_RUN" => None,
        name if call.is_kvm() || name == "close" => Some(format!("{name} {fd} {result}")),
        _ => None,
    }
}

fn every_call() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (name, arguments) in [
        ("plain", &[][..]),
        ("devices", &["irqchip=1", "unregister=1"]),
        ("many", &["vcpus=12", "unregister=1", "unmap=2"]),
    ] {
        let log = directory.join(format!("planted-{name}.log"));
        let said = format!("log={}", log.display());
        let mut arguments = arguments.to_vec();
        arguments.push(&said);
        let trace = traced(&launch(&arguments));
        let seen: Vec<String> = trace.calls.iter().filter_map(told).collect();
        let truth = fs::read_to_string(&log).unwrap();
        assert_eq!(seen, truth.lines().collect::<Vec<_>>(), "{name}");
        assert_eq!(trace.lost, 0);
    }
}

fn every_call_by_events() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (name, arguments) in
        [("plain", &[][..]), ("devices", &["irqchip=1", "unregister=1"]), ("many", &["vcpus=12"])]
    {
        let log = directory.join(format!("events-{name}.log"));
        let said = format!("log={}", log.display());
        let mut arguments = arguments.to_vec();
        arguments.push(&said);
        let trace = match traced_by(Choice::Tracefs, &launch(&arguments)) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => traced.unwrap(),
        };
        assert_eq!((trace.end, trace.recorder), (Some(End::Code(0)), Recorder::Tracefs));
        let seen: Vec<String> = trace.calls.iter().filter_map(told).collect();
        let truth = fs::read_to_string(&log).unwrap();
        assert_eq!(seen, truth.lines().collect::<Vec<_>>(), "{name}");
        // The vCPU was entered within its first run, and left before its thread ended.
        let run = trace.calls.iter().find(|call| call.name == "KVM_RUN").unwrap();
        assert!(run.arguments.get("entered").is_none_or(|after| Some(*after) <= run.took));
        let runner = trace.threads.iter().find(|thread| thread.vcpu).unwrap();
        assert!(trace.last_exit() >= Some(run.end()) && trace.last_exit() <= runner.ending);
        let ends: Vec<&str> = trace.phases.iter().map(|phase| &phase.name[..]).collect();
        for phase in ["exec", "first entry", "last exit", "threads joined", "process gone"] {
            assert!(ends.contains(&phase), "{name}: {ends:?}");
        }
        assert_eq!(trace.stops.count, 0);
        assert!(trace.threads.iter().all(|thread| thread.gone.is_some()), "{:?}", trace.threads);
    }
}

/// A host with EPT or NPT of its own keeps nothing of each page.
fn large_slot() {
    for recorder in [Choice::Ptrace, Choice::Tracefs] {
        let trace = match traced_by(recorder, &launch(&["slot=32"])) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => traced.unwrap(),
        };
        let mut causes = trace.stalls.iter().filter_map(|stall| stall.cause.as_ref());
        let named = causes.any(|cause| cause.code == "large-memslot");
        let waited = trace.calls.iter().any(|call| {
            let (took, ran) = (call.took.unwrap_or(0), call.used.map_or(0, |used| used.ran));
            call.name == "KVM_SET_USER_MEMORY_REGION" && ran >= 4_000_000 && ran >= took / 5 * 4
        });
        if waited {
            assert!(named, "{:?}", trace.stalls);
        } else {
            println!("not a wait on this host");
        }
    }
}

fn first_run_alone() {
    let trace = traced(&launch(&["kick=20"]));
    let runs: Vec<&Call> = trace.calls.iter().filter(|call| call.name == "KVM_RUN").collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let runner = trace.threads.iter().find(|thread| thread.vcpu).unwrap();
    assert_eq!((runner.tid, runner.pid), (runs[0].tid, runs[0].pid));
    assert_ne!(runner.tid, runner.pid);
    // It was kicked before it ran, and again.
    let signals: Vec<u64> = runner.signals.iter().map(|(at, _)| *at).collect();
    let (first, last) = (signals[0], signals[signals.len() - 1]);
    assert!(first <= runs[0].at && runs[0].at < last, "{signals:?} {runs:?}");
    assert!(trace.last_exit().unwrap() >= last);
}

fn phases() {
    let trace = traced(&launch(&["irqchip=1"]));
    let names: Vec<&str> = trace.phases.iter().map(|phase| phase.name.as_str()).collect();
    let expected = [
        "exec",
        "VM created",
        "irqchip and devices",
        "memory",
        "vCPUs",
        "first entry",
        "last exit",
        "threads joined",
        "fds closed",
        "process gone",
    ];
    assert_eq!(names, expected);
    let whole: u64 = trace.phases.iter().map(|phase| phase.took).sum();
    assert_eq!(whole, trace.span);
    assert!(trace.start().unwrap() + trace.stop().unwrap() <= trace.span);
    let json = serde_json::to_value(&trace).unwrap();
    assert_eq!(json["schema"], "mayfly.trace/1");
    assert_eq!(serde_json::from_value::<Trace>(json).unwrap(), trace);
}

/// What a process leaves open is closed by the thread that ends last, which may be one of KVM's.
fn gone_with_its_vm() {
    for recorder in [Choice::Ptrace, Choice::Tracefs] {
        let mut seen = 0;
        for _ in 0..5 {
            let trace = match traced_by(recorder, &launch(&["irqchip=1", "abandon=1"])) {
                Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
                traced => traced.unwrap(),
            };
            let process = &trace.processes[0];
            let gone = process.gone.unwrap();
            let last =
                trace.threads.iter().filter(|one| one.pid == process.pid).map(|one| one.gone);
            let last = last.max().flatten().unwrap();
            // One that is over may leave its processor for good when the process has been waited for.
            let waited = process.waited.unwrap_or(last);
            assert_eq!(gone, last.min(waited), "{:?}", trace.threads);
            assert_eq!(trace.phases.last().map(|phase| phase.at), Some(gone));
            let destroys = trace
                .samples
                .iter()
                .filter(|one| one.stack.iter().any(|at| at == "kvm_destroy_vm"));
            for look in destroys {
                assert!(look.at <= gone, "{look:?} {:?}", trace.threads);
                seen += look.seen;
            }
        }
        println!("{seen} looks saw the VM's destruction");
    }
}

fn proof() {
    let launch = launch(&["irqchip=1"]);
    let is_proved = || {
        let mut trace = traced(&launch);
        prove(&launch, &mut trace).unwrap();
        let causes = trace.stalls.iter().filter_map(|stall| stall.cause.as_ref());
        let mut causes = causes.filter(|cause| cause.code == "grace-period");
        causes.any(|cause| cause.verdict == Verdict::Proved)
    };
    // Only such a kernel has it: an earlier one waits elsewhere, and a later one may not.
    let host = Host::gather(["test".to_owned()]);
    if host.kernel.starts_with("6.18.") {
        is_soon_so(is_proved);
    } else {
        println!("not proved: Linux {} may not defer what it frees", host.kernel);
    }
}

/// Tries until it is so, and fails after five times in vain. Of a host where somebody waited for a processor in a quarter of
/// the time the medians of a few runs say little: such a try does not count.
fn is_soon_so(is_so: impl Fn() -> bool) {
    let mut in_vain = 0;
    for _ in 0..20 {
        let (waited, begun) = (waited_for_a_processor(), Instant::now());
        if is_so() {
            return;
        }
        let waited = waited_for_a_processor().saturating_sub(waited);
        in_vain += u32::from(waited * 4 < begun.elapsed());
        assert!(in_vain < 5, "the wait does not pass with time");
    }
    println!("not proved: other threads had the processors");
}

/// How long somebody on this host could run, and had to wait for it: Linux's pressure stall information, if it keeps any.
fn waited_for_a_processor() -> Duration {
    let text = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = text.lines().next().and_then(|some| some.rsplit_once("total="));
    Duration::from_micros(total.map_or(0, |(_, total)| total.parse().unwrap()))
}

fn held_back() {
    let time = 50_000_000;
    let name = "KVM_CREATE_VCPU";
    let delay = mayfly_trace::Delay { name: name.to_owned(), nth: 1, time };
    let launch = Launch { delay: Some(delay), ..launch(&["vcpus=3"]) };
    let trace = traced(&launch);
    let calls: Vec<&Call> = trace.calls.iter().filter(|call| call.name == name).collect();
    assert_eq!(calls.len(), 3);
    assert!(calls[1].at - calls[0].end() >= time, "held back");
    // It was not let go before, so what it takes is its own.
    assert!(calls.iter().all(|call| call.result.is_some_and(|fd| fd >= 0)));
}
