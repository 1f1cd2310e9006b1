//! The recorder, held against programs that are hard to follow: this one, with an argument that says which.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use mayfly_trace::{End, Error, Launch, Output, attach, record};

type Named = (&'static str, fn());

const TESTS: &[Named] = &[
    ("a_thread_that_waits_for_its_vforked_child_holds_nobody_up", let_go_in_vfork),
    ("a_thread_s_number_stands_for_its_process", number_of_a_thread),
    ("a_program_that_is_refused_ptrace_is_told_of", refused_ptrace),
    ("a_process_that_has_ended_is_said_to_have", has_ended),
    ("limits_of_the_program_are_none_of_who_follows", limits),
    ("a_signal_before_the_execution_is_the_program_s_end", ended_early),
    ("threads_that_were_joined_stand_in_nobody_s_way_and_one_that_runs_does", joined_threads),
    ("a_broken_pipe_is_ignored_by_whom_it_would_be_else", broken_pipe),
];

const PROGRAMS: &[Named] = &[
    ("--as=vfork", vforks),
    ("--as=thread", has_a_thread),
    ("--as=traced", asks_to_be_traced),
    ("--as=recorder", records),
    ("--as=limited", is_limited),
    ("--as=early", is_ended_early),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some((_, program)) =
        PROGRAMS.iter().find(|(name, _)| wanted.iter().any(|one| one == name))
    {
        return program();
    }
    let wanted: Vec<String> = wanted.into_iter().filter(|one| !one.starts_with('-')).collect();
    let tests = TESTS.iter().filter(|(name, _)| {
        wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
    });
    for (name, test) in tests {
        println!("test {name}");
        test();
    }
}

fn joined_threads() {
    let launch =
        || Launch { command: vec!["true".into()], output: Output::Null, ..Launch::default() };
    for _ in 0..100 {
        // Whoever has waited for them goes on before they are gone.
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| ()))));
        assert_eq!(record(&launch(), &mut |_| {}).unwrap().trace.end, Some(End::Code(0)));
    }
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let second = thread::spawn(move || ended.recv().unwrap_err());
    let Err(Error::System(error)) = record(&launch(), &mut |_| {}) else {
        panic!("it forked with a second thread");
    };
    assert_eq!(error.raw_os_error(), Some(libc::EDEADLK));
    drop(end);
    second.join().unwrap();
}

/// Forks, and waits in the kernel until the child executes or ends, which it does not.
fn vforks() {
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: this process has one thread. The child has memory of its own, as after fork, and calls nothing that locks.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: takes numbers alone.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        println!("{}", std::process::id());
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Its second thread ends well as soon as it is followed; the process ends otherwise.
fn has_a_thread() {
    let second = thread::spawn(|| {
        println!("{}", rustix::thread::gettid().as_raw_nonzero());
        wait_for("somebody follows", || is_traced(std::process::id()));
    });
    second.join().unwrap();
    std::process::exit(13);
}

fn asks_to_be_traced() {
    // SAFETY: PTRACE_TRACEME takes nothing else.
    let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    std::process::exit(if done == -1 { 5 } else { 0 });
}

/// Records a program that sends itself SIGPIPE.
fn records() {
    let command = ["sh", "-c", "kill -PIPE $$; exit 3"].map(OsString::from).to_vec();
    let launch = Launch { command, output: Output::Null, ..Launch::default() };
    let code = match record(&launch, &mut |line| panic!("{line}")).unwrap().trace.end {
        Some(End::Code(code)) => code,
        Some(End::Signal(signal)) => 128 + signal,
        None => 1,
    };
    std::process::exit(code);
}

/// Records a program that ends well if it is limited and who follows it is not, or less.
fn is_limited() {
    let limit = "awk '/Max cpu time/ { print $4 }' /proc";
    let script = format!("[ $({limit}/$$/limits) = 1000 ] && [ $({limit}/$PPID/limits) != 1000 ]");
    let command = ["sh", "-c", &script].map(OsString::from).to_vec();
    let launch = Launch { command, output: Output::Null, ..Launch::default() };
    let trace = record(&launch, &mut |line| panic!("{line}")).unwrap().trace;
    assert_eq!(trace.end, Some(End::Code(0)));
}

/// Records a program that the kernel ends where it is to be executed.
fn is_ended_early() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_execve as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the first takes numbers alone; the other one reads the four instructions, which outlive it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
    }
    let command = vec![OsString::from("true")];
    let launch = Launch { command, output: Output::Null, ..Launch::default() };
    let trace = record(&launch, &mut |line| panic!("{line}")).unwrap().trace;
    assert_eq!(trace.end, Some(End::Signal(libc::SIGSYS)));
    assert!(trace.notes.iter().any(|note| note.contains("before it was executed")));
}

/// This program as another, and the number that it says.
fn start(name: &str) -> (Child, i32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut program = command.arg(name).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (program, line.trim().parse().unwrap())
}

fn status(pid: u32, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    value.unwrap_or_default().trim().to_owned()
}

fn is_traced(pid: u32) -> bool {
    !["", "0"].contains(&status(pid, "TracerPid:").as_str())
}

/// Waits until it is so. Panics where it has not been so in many looks: a minute at least, on a host that does nothing else.
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let comes = (0..12_000).any(|_| {
        let is_there = is_there();
        if !is_there {
            thread::sleep(Duration::from_millis(5));
        }
        is_there
    });
    assert!(comes, "{what}: it does not come");
}

fn let_go_in_vfork() {
    let (mut program, child) = start("--as=vfork");
    let pid = program.id();
    // Held back until it is asked for, however early it comes.
    // SAFETY: both sets are locals, and sigemptyset makes the first one of none.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
    let script =
        "until grep -q 'TracerPid:.[1-9]' /proc/$1/status; do sleep 0.01; done; kill -INT $2";
    let mut asks = Command::new("sh");
    asks.args(["-c", script, "sh", &pid.to_string(), &std::process::id().to_string()]);
    let mut asks = asks.spawn().unwrap();
    let trace = attach(pid.cast_signed()).unwrap().trace;
    asks.wait().unwrap();
    assert_eq!(trace.end, None);
    assert!(!is_traced(pid));
    assert_eq!(status(child.cast_unsigned(), "PPid:"), pid.to_string(), "it waits for it still");
    program.kill().unwrap();
    program.wait().unwrap();
}

fn number_of_a_thread() {
    let (mut program, tid) = start("--as=thread");
    assert_ne!(tid, program.id().cast_signed());
    let trace = attach(tid).unwrap().trace;
    assert_eq!(trace.end, Some(End::Code(13)));
    assert_eq!(program.wait().unwrap().code(), Some(13));
}

fn refused_ptrace() {
    let notes = |argument: &str, code| {
        let program = std::env::current_exe().unwrap();
        let command: Vec<OsString> = vec![program.into(), argument.into()];
        let launch = Launch { command, output: Output::Null, ..Launch::default() };
        let trace = record(&launch, &mut |line| panic!("{line}")).unwrap().trace;
        assert_eq!(trace.end, Some(End::Code(code)));
        trace.notes.into_iter().filter(|note| note.contains("refused ptrace")).count()
    };
    assert_eq!(notes("--as=traced", 5), 1);
    assert_eq!(notes("no_such_test", 0), 0);
}

fn has_ended() {
    let mut ended = Command::new("true").spawn().unwrap();
    wait_for("it ends", || status(ended.id(), "State:").starts_with('Z'));
    let Err(Error::Denied(why)) = attach(ended.id().cast_signed()) else {
        panic!("a process that has ended was followed")
    };
    assert!(why.contains("has ended") && !why.contains('\n'), "{why}");
    ended.wait().unwrap();
}

fn broken_pipe() {
    for (before, code) in [("trap '' PIPE", 3), ("true", 128 + libc::SIGPIPE)] {
        let script = format!("{before}; exec \"$0\" --as=recorder");
        let program = std::env::current_exe().unwrap();
        let status = Command::new("sh").arg("-c").arg(script).arg(program).status().unwrap();
        assert_eq!(status.code(), Some(code), "{before}");
    }
}

fn limits() {
    let script = "ulimit -H -t 2000; ulimit -S -t 1000; exec \"$0\" --as=limited";
    let program = std::env::current_exe().unwrap();
    assert!(Command::new("sh").arg("-c").arg(script).arg(program).status().unwrap().success());
}

fn ended_early() {
    let program = std::env::current_exe().unwrap();
    assert!(Command::new(program).arg("--as=early").status().unwrap().success());
}
