//! Why the kernel refuses to have a process traced, as far as that can be known.

use std::fs;
use std::io;

use super::proc::fields;

/// Of a kernel's thread, in the flags of `/proc/PID/stat` (linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;

/// What is said when process `pid` may not be followed.
pub(super) fn denied(pid: i32, error: &io::Error) -> String {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let me = rustix::process::geteuid().as_raw();
    let why = of_process(pid, me, &file("stat"), &file("status"))
        .unwrap_or_else(|| of_host(&scope).to_owned());
    format!("cannot trace: ptrace: {error}: {why}")
}

/// What lies in the process that user `me` is to follow, by its `/proc/PID/stat` and `/proc/PID/status`.
fn of_process(pid: i32, me: u32, stat: &str, status: &str) -> Option<String> {
    // State, five numbers, and the flags.
    let mut fields = fields(stat)?;
    let state = fields.next()?;
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let tracer = value("TracerPid:").filter(|tracer| *tracer != "0");
    if flags & PF_KTHREAD != 0 {
        return Some(format!("{pid} is a kernel thread, which cannot be traced"));
    }
    if ["Z", "X"].contains(&state) {
        return Some(format!("process {pid} has ended, and its parent has not waited for it"));
    }
    if let Some(tracer) = tracer {
        return Some(format!(
            "process {tracer} already traces process {pid}, and a process can have only one tracer"
        ));
    }
    let mut users = value("Uid:")?.split_ascii_whitespace();
    let is_other = users.any(|user| user.parse() != Ok(me));
    (is_other && me != 0).then(|| {
        format!("process {pid} has another user's rights: tracing it requires CAP_SYS_PTRACE, which root has")
    })
}

/// What lies in the host, by what Yama allows.
fn of_host(scope: &str) -> &'static str {
    match scope.trim() {
        "3" => "kernel.yama.ptrace_scope is 3, which forbids ptrace until the next boot",
        "2" => "kernel.yama.ptrace_scope is 2: ptrace requires CAP_SYS_PTRACE, which root has",
        "1" => {
            "kernel.yama.ptrace_scope is 1: a process may trace only what it has started, unless it has CAP_SYS_PTRACE, which root has"
        }
        _ => "a seccomp filter, as containers have, or a security module forbids ptrace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_process_is_told_from_what_lies_in_the_host() {
        let mine = "Uid:\t70\t70\t70\t70\nTracerPid:\t0\n";
        let traced = mine.replace("TracerPid:\t0", "TracerPid:\t77");
        let of = |stat: &str, status: &str| of_process(5, 70, stat, status);
        let stat = "5 (a) S 0) S 1 5 5 0 -1 4194304 100 0";
        assert_eq!(of(stat, mine), None);
        assert!(of(stat, &traced).unwrap().contains("process 77 already traces process 5"));
        let kernel = "5 (kworker/0:1-) I 2 0 0 0 -1 69238880 0 0";
        assert!(of(kernel, mine).unwrap().contains("a kernel thread"));
        assert!(of("5 (true) Z 1 5 5 0 -1 4227084 0 0", mine).unwrap().contains("has ended"));
        for bad in ["", "5", "5 (a", "5 (a) S", "5 (a) S 1 5 5 0 -1", "5 (a) S 1 5 5 0 -1 x"] {
            assert_eq!(of(bad, &traced), None, "{bad}");
        }
        // Without root, another user's process may not be traced. Root may trace it, so it is something else.
        for other in [mine.replacen("70", "71", 1), mine.replacen("70\n", "0\n", 1)] {
            assert!(of(stat, &other).unwrap().contains("another user"));
            assert_eq!(of_process(5, 0, stat, &other), None);
        }
        assert_eq!(of(stat, "nothing"), None);
    }

    #[test]
    fn each_scope_of_yama_is_named() {
        for scope in ["1", "2", "3"] {
            assert!(of_host(&format!("{scope}\n")).contains(&format!("ptrace_scope is {scope}")));
        }
        assert!(!of_host("").contains("yama") && !of_host("0\n").contains("yama"));
    }
}
