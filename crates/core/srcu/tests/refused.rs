//! A process whose seccomp filter refuses what its domains rest on ends, and says why. It never reads what was freed.
//!
//! Each case is a process of its own: this test's binary again, told by a variable which case it is. It builds a domain
//! on the stock `Host`, with readers and a worker's thread, and only then installs its filter, as VMMs do.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![cfg(not(any(miri, mayfly_loom, mayfly_shuttle)))]

mod patience;

use std::env;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output, Stdio, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use mayfly_platform::{Host, Platform};
use mayfly_srcu::{Config, Rcu, RcuBox, Srcu, WorkerThread};

const CASE: &str = "MAYFLY_REFUSED";

/// How a process ends that does not abort.
const SKIPPED: i32 = 77;
const FREED_EARLY: i32 = 2;
const LIVES_ON: i32 = 3;

#[test]
fn a_membarrier_that_is_refused_aborts_whoever_starts_the_grace_period() {
    for case in ["membarrier by a waiter", "membarrier by the worker", "membarrier by a poller"] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            aborts_and_names("membarrier", case, errno);
        }
    }
}

#[test]
fn a_futex_wake_that_is_refused_aborts_the_reader_that_leaves() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        aborts_and_names("futex", "futex by a reader", errno);
    }
}

#[test]
fn where_nobody_reads_what_is_said_it_aborts_all_the_same() {
    let Some(mut child) = this_test("membarrier alone, unheard", libc::EPERM) else { return };
    let (unread, end) = std::io::pipe().unwrap();
    drop(unread);
    let status = child.stderr(end).stdout(Stdio::null()).status().unwrap();
    if status.code() != Some(SKIPPED) {
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
    }
}

/// Runs `case` in a process of its own, where `errno` is what `call` returns.
fn aborts_and_names(call: &str, case: &str, errno: i32) {
    let Some(mut child) = this_test(case, errno) else { return };
    let Output { status, stdout, stderr } = child.output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&stderr), String::from_utf8_lossy(&stdout));
    if status.code() == Some(SKIPPED) {
        let _ = writeln!(io::stderr(), "not run: {}", said.trim());
        return;
    }
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{case}, {errno}: {status}\n{told}\n{said}");
    let line = said.lines().find(|line| line.contains("was refused")).unwrap_or_default();
    assert!(line.contains(call) && line.contains("seccomp"), "{case}, {errno}:\n{said}");
}

/// The test that calls this, as a process that has this case to do; `None` in that process, when it has done it.
fn this_test(case: &str, errno: i32) -> Option<Command> {
    if let Ok(mine) = env::var(CASE) {
        if mine == format!("{case}/{errno}") {
            without_core_dump();
            be_refused(case, errno);
        }
        return None;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", thread::current().name().unwrap(), "--nocapture"]);
    child.env(CASE, format!("{case}/{errno}"));
    Some(child)
}

/// A value that knows whether it was dropped, without being looked at.
struct Value(Arc<AtomicBool>);

impl Value {
    fn boxed() -> (RcuBox<Self>, Arc<AtomicBool>) {
        let freed = Arc::new(AtomicBool::new(false));
        (RcuBox::try_new(Self(Arc::clone(&freed))).unwrap(), freed)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn be_refused(case: &str, errno: i32) -> ! {
    let host = Arc::new(Host::new());
    let worker = WorkerThread::spawn(host.clone()).unwrap();
    let config = Config { worker: Some(Arc::clone(worker.worker())), ..Config::default() };
    let domain = Srcu::try_new(host.clone(), config).unwrap();
    if domain.is_fenced() && case.starts_with("membarrier") {
        eprintln!("this kernel has no membarrier(2), so nobody is refused it");
        exit(SKIPPED);
    }
    let (value, freed) = Value::boxed();
    let value = Arc::new(Rcu::new(&domain, value));
    let (inside, is_inside) = mpsc::channel();
    let (leave, is_to_leave) = mpsc::channel::<()>();
    // Inside from before the value is replaced, to the end, or until it is told.
    let reader = {
        let (value, reader, freed) = (Arc::clone(&value), domain.reader().unwrap(), freed.clone());
        thread::spawn(move || {
            let section = reader.lock();
            let seen = value.load(&section);
            inside.send(()).unwrap();
            while is_to_leave.try_recv().is_err() {
                if freed.load(Ordering::SeqCst) {
                    eprintln!("freed under its reader");
                    exit(FREED_EARLY);
                }
                thread::yield_now();
            }
            assert!(!seen.0.load(Ordering::SeqCst));
        })
    };
    is_inside.recv().unwrap();
    let retire = || value.replace(Value::boxed().0);
    match case {
        "membarrier by a waiter" => {
            let retired = retire();
            filter(libc::SYS_membarrier, 0, errno);
            let _ = catch_unwind(AssertUnwindSafe(|| retired.synchronize_expedited()));
        }
        "membarrier by the worker" => {
            filter(libc::SYS_membarrier, 0, errno);
            retire().defer();
        }
        "membarrier by a poller" => {
            let mut polled = Some(retire().into_polled());
            filter(libc::SYS_membarrier, 0, errno);
            patience::spent(|| {
                let Some(value) = polled.take() else { return true };
                if let Ok(Err(not_yet)) = catch_unwind(AssertUnwindSafe(|| value.try_take())) {
                    polled = Some(not_yet);
                }
                polled.is_none()
            });
        }
        "membarrier alone, unheard" => {
            filter(libc::SYS_membarrier, 0, errno);
            let _ = catch_unwind(AssertUnwindSafe(|| host.heavy_barrier()));
            exit(LIVES_ON);
        }
        "futex by a reader" => {
            let retired = retire();
            let sleeper = thread::spawn(move || retired.synchronize());
            while domain.stats().sleeps == 0 {
                thread::yield_now();
            }
            filter(libc::SYS_futex, libc::FUTEX_WAKE, errno);
            leave.send(()).unwrap();
            // A reader that is not refused ends, and the sleeper with it or never.
            let _ = reader.join();
            drop(sleeper);
        }
        _ => unreachable!("{case}"),
    }
    // A worker takes its time; so may what was freed by mistake.
    patience::spent(|| {
        domain.try_call(mayfly_srcu::Callback::try_new(|| ()).unwrap()).unwrap();
        false
    });
    eprintln!("the process lives on");
    exit(LIVES_ON);
}

/// An abort that is meant is no reason to write one.
fn without_core_dump() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the structure, and is about this process alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
}

/// Has all threads of this process refused system call `number` where its second argument is `second`, a futex's flags
/// left aside: they get `errno` from it.
fn filter(number: libc::c_long, second: i32, errno: i32) {
    #[cfg(target_arch = "x86_64")]
    const AUDIT_ARCH: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const AUDIT_ARCH: u32 = 0xc000_00b7;
    // Offsets in `struct seccomp_data`; both architectures are little-endian.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const SECOND_ARGUMENT: u32 = 24;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

    let op = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let command = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let mut program = vec![
        op(LOAD, ARCH, 0),
        op(IS, AUDIT_ARCH, 6),
        op(LOAD, NUMBER, 0),
        op(IS, u32::try_from(number).unwrap(), 4),
        op(LOAD, SECOND_ARGUMENT, 0),
        op(AND, command.cast_unsigned(), 0),
        op(IS, second.cast_unsigned(), 1),
        op(RETURN, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned(), 0),
        op(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: reads the filter, and takes away from this process alone.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const filter,
            ) == 0
    };
    if !installed {
        eprintln!("this host installs no filter: {}", std::io::Error::last_os_error());
        exit(SKIPPED);
    }
}
