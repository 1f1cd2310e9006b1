//! A process that runs when nothing else has anything to do, in place of the kernel's idle loop. That halts the processor, and
//! the time-stamp counter goes on. This one executes a loop whose instructions are known, and says how often it has done so.
//!
//! It has a process of its own: in a thread, what is measured would not be that of a process with one thread. Its policy is
//! `SCHED_IDLE`, so whatever wakes up has the processor at once.

use std::arch::asm;
use std::io::Error;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

/// Instructions of a turn of its loop, and those of them that do nothing. What it has executed is known but for a turn.
const TURN: u64 = 32;
const NOTHING: u64 = TURN - 2;

/// That process.
pub(super) struct Idle {
    process: libc::pid_t,
    /// How many turns there were: shared with it, and never unmapped.
    turns: NonNull<AtomicU64>,
}

impl Idle {
    /// Starts it. This process has no other thread by then.
    pub(super) fn start() -> anyhow::Result<Self> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever there is room.
        let mapped = unsafe { libc::mmap(null_mut(), size_of::<AtomicU64>(), access, kind, -1, 0) };
        let turns = NonNull::new(mapped.cast::<AtomicU64>());
        let turns = turns.filter(|_| mapped != libc::MAP_FAILED);
        let turns = turns.ok_or_else(Error::last_os_error).context("mmap")?;
        // SAFETY: there is no other thread; and the child makes one system call, and nothing that would need another.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last_os_error()).context("fork"),
            // SAFETY: this is the child, and the mapping is never unmapped.
            0 => unsafe { run(turns) },
            process => {
                let this = Self { process, turns };
                // Musl's function of that name refuses it. No policy but those of real time has a priority.
                let (call, priority) = (libc::SYS_sched_setscheduler, 0_i32);
                // SAFETY: reads a `sched_param`, which is that number, and writes nothing of this process.
                let set =
                    unsafe { libc::syscall(call, process, libc::SCHED_IDLE, &raw const priority) };
                if set != 0 {
                    return Err(Error::last_os_error()).context("sched_setscheduler");
                }
                Ok(this)
            }
        }
    }

    /// What it has executed until now, but for a turn.
    pub(super) fn instructions(&self) -> u64 {
        // SAFETY: it is mapped as long as this process is there.
        unsafe { self.turns.as_ref() }.load(Ordering::Relaxed) * TURN
    }
}

/// Counts turns for ever, or until the parent ends.
///
/// # Safety
///
/// This is the only thread of its process, and `turns` is mapped for good.
unsafe fn run(turns: NonNull<AtomicU64>) -> ! {
    // SAFETY: sets which signal this process gets at its parent's end; then changes nothing but `turns`, and never leaves.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        asm!(
            "2:",
            "inc qword ptr [{turns}]",
            ".rept {nothing}",
            "nop",
            ".endr",
            "jmp 2b",
            nothing = const NOTHING,
            turns = in(reg) turns.as_ptr(),
            options(noreturn),
        );
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: this process's child, which nothing else waits for.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, null_mut(), 0);
        }
    }
}
