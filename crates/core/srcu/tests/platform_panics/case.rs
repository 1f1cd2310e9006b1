//! One method that panics while one thing is under way: how it is run, and how it has to end.

use std::env;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use mayfly_platform::ReaderBarrier;
use mayfly_srcu::{Rcu, RcuBox, Retired, Srcu};

use crate::patience;
use crate::platform::{Panicking, Whose};

/// The test whose case a process is there for.
const CASE: &str = "MAYFLY_PLATFORM_PANICS";

/// How a process ends that does not abort.
const FREED_EARLY: i32 = 2;
const LIVES_ON: i32 = 3;

pub(crate) struct Case {
    method: &'static str,
    whose: Whose,
    platform: OnceLock<Arc<Panicking>>,
}

/// Sees to it that the program aborts where `method` panics while this is under way.
pub(crate) fn aborts(method: &'static str, whose: Whose, under_way: fn(&Case)) {
    let test = thread::current().name().unwrap().to_owned();
    if cfg!(miri) || env::var(CASE).is_ok_and(|case| case == test) {
        without_core_dump();
        // The message alone: under Miri a backtrace takes longer than all the rest.
        panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
        thread::spawn(|| {
            patience::spent(|| false);
            lives_on("nothing panicked for too long");
        });
        under_way(&Case { method, whose, platform: OnceLock::new() });
        lives_on("nothing aborted");
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .env(CASE, &test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(is_abort(output.status), "{test}: {}\n{said}", output.status);
    for line in [&*format!("the platform panics in {method}"), "a panic that cannot go on"] {
        assert!(said.contains(line), "{test} says nothing of it: {line}\n{said}");
    }
}

#[cfg(unix)]
fn is_abort(status: std::process::ExitStatus) -> bool {
    const SIGABRT: i32 = 6;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGABRT)
}

#[cfg(not(unix))]
fn is_abort(status: std::process::ExitStatus) -> bool {
    !status.success() && ![FREED_EARLY, LIVES_ON].map(Some).contains(&status.code())
}

/// An abort that is meant is no reason to write one.
fn without_core_dump() {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads the structure, and is about this process alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
    }
}

fn lives_on(why: &str) -> ! {
    eprintln!("the program lives on: {why}");
    exit(LIVES_ON);
}

/// What a reader looks at.
pub(crate) struct Value {
    freed: Arc<AtomicBool>,
    number: u64,
}

impl Value {
    fn boxed() -> RcuBox<Self> {
        RcuBox::try_new(Self { freed: Arc::default(), number: 42 }).unwrap()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::SeqCst);
    }
}

impl Case {
    /// The platform of this case, which is the same whenever it is asked for.
    pub(crate) fn platform(&self, barrier: ReaderBarrier) -> Arc<Panicking> {
        Arc::clone(self.platform.get_or_init(|| Arc::new(Panicking::new(barrier, self.method))))
    }

    /// Does `work` while the platform panics.
    pub(crate) fn armed(&self, work: impl FnOnce()) {
        let platform = self.platform.get().unwrap();
        platform.arm(self.whose);
        let _ = catch_unwind(AssertUnwindSafe(work));
        platform.disarm();
    }

    /// Does `work` with a value that a reader of `domain` is looking at still, while the platform panics; and then what
    /// others would do on that domain.
    pub(crate) fn with_a_reader_inside(&self, domain: &Srcu, work: fn(Retired<Value>)) {
        let value = Arc::new(Rcu::new(domain, Value::boxed()));
        let freed = Arc::clone(&value.load(&domain.read_lock()).freed);
        let (inside, is_inside) = mpsc::channel();
        let (leave, is_to_leave) = mpsc::channel();
        let reader = {
            let (value, reader) = (Arc::clone(&value), domain.reader().unwrap());
            thread::spawn(move || {
                let section = reader.lock();
                let seen = value.load(&section);
                inside.send(()).unwrap();
                is_to_leave.recv().unwrap();
                assert_eq!(seen.number, 42);
            })
        };
        is_inside.recv().unwrap();
        let retired = value.replace(Value::boxed());
        self.armed(|| work(retired));
        let cookie = domain.cookie();
        for _ in 0..10 {
            let _ = catch_unwind(AssertUnwindSafe(|| domain.poll(cookie)));
            let _ = catch_unwind(AssertUnwindSafe(|| domain.tick()));
            thread::sleep(Duration::from_millis(10));
        }
        if freed.load(Ordering::SeqCst) && !cfg!(miri) {
            eprintln!("freed under its reader");
            exit(FREED_EARLY);
        }
        // Miri looks for itself.
        leave.send(()).unwrap();
        drop(reader.join());
    }
}
