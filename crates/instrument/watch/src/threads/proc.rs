//! What `/proc` says of a thread.

use std::fs;

/// `KVM_RUN` of linux/kvm.h, and the byte that all of KVM's requests have.
const KVM_RUN: u64 = 0xAE80;
const KVM: u64 = 0xAE;

/// Functions of the kernel's in which a thread is held that a signal, a debugger or the freezer has stopped. It has left
/// `KVM_RUN` by then, but its call is still told as the one that it is in.
const STOPS: [&str; 5] =
    ["do_signal_stop", "ptrace_stop", "get_signal", "do_freezer_trap", "__refrigerator"];

/// Of a thread that the kernel has started in a process's name, in the flags of `/proc/TID/stat` (linux/sched.h, from 6.4
/// on). KVM's worker for huge pages is one. The system call that `/proc` names for such a thread is
/// that of its creator, which was in `KVM_RUN`.
const PF_USER_WORKER: u64 = 0x4000;

/// What a thread is found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// On a processor, or waiting for one.
    Runs,
    /// In `KVM_RUN`, in a function of the kernel's.
    InRun(String),
    /// Out of `KVM_RUN`, and held by the kernel until it is continued.
    Held,
    /// In another call to KVM, with this descriptor and number.
    InCall(i32, u64, String),
    /// In anything else.
    Elsewhere,
}

/// What is wanted of `/proc/TID/stat`.
pub(super) struct Stat {
    /// The kernel has started it.
    pub(super) is_worker: bool,
    /// How long it was in a guest, in the kernel's unit.
    pub(super) guest: u64,
}

impl Stat {
    /// The name in parentheses may have anything in it; behind it come the state, five numbers, and the flags, which are the
    /// 9th field; the guest's time is the 43rd.
    pub(super) fn of(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let flags: u64 = fields.nth(6)?.parse().ok()?;
        let guest = fields.nth(33).and_then(|guest| guest.parse().ok()).unwrap_or(0);
        Some(Self { is_worker: flags & PF_USER_WORKER != 0, guest })
    }
}

/// The threads of a process.
pub(crate) fn threads_of(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What `/proc/TID/syscall` says, with `/proc/TID/wchan` where that matters.
pub(super) fn found(call: &str, function: impl FnOnce() -> String) -> Found {
    let mut words = call.split_ascii_whitespace();
    let number = words.next().unwrap_or_default();
    if number == "running" {
        return Found::Runs;
    }
    if number.parse() != Ok(libc::SYS_ioctl) {
        return Found::Elsewhere;
    }
    let mut argument =
        || words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (Some(fd), Some(request)) = (argument(), argument()) else { return Found::Elsewhere };
    let request = request & 0xFFFF_FFFF;
    match request {
        KVM_RUN => match function() {
            held if STOPS.iter().any(|stop| held.starts_with(stop)) => Found::Held,
            function => Found::InRun(function),
        },
        _ if request >> 8 & 0xFF == KVM => Found::InCall(fd as i32, request, function()),
        _ => Found::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REGION: u64 = 0x4020_AE46;

    fn of(text: &str, function: &str) -> Found {
        found(text, || function.to_owned())
    }

    #[test]
    fn what_proc_says_is_told_apart() {
        let ioctl = libc::SYS_ioctl;
        assert_eq!(of("running\n", ""), Found::Runs);
        let run = of(&format!("{ioctl} 0xc 0xae80 0x0 0x0 0x0 0x0 0x7f 0x7f\n"), "kvm_vcpu_block");
        assert_eq!(run, Found::InRun("kvm_vcpu_block".to_owned()));
        // Some programs have the sign of an int in it.
        let call = of(&format!("{ioctl} 0xc 0xffffffff{REGION:x} 0x7ffc"), "synchronize_srcu");
        assert_eq!(call, Found::InCall(12, REGION, "synchronize_srcu".to_owned()));
        for other in ["0 0x1 0x2", "-1 0x7ffc 0x7f", "", "x", &format!("{ioctl}")] {
            assert_eq!(of(other, ""), Found::Elsewhere, "{other}");
        }
        assert_eq!(of(&format!("{ioctl} 0x1 0x5401 0x0"), ""), Found::Elsewhere);
    }

    #[test]
    fn who_runs_a_guest_and_who_is_the_kernel_s_is_told_by_numbers_behind_any_name() {
        let numbers = |flags: u64, guest: u64| {
            let between = "0 ".repeat(33);
            format!("66 (CPU 0) 4210688 (KVM) S 1 65 1 0 -1 {flags} {between}{guest} 0 7\n")
        };
        let of = |text: &str| Stat::of(text).map(|stat| (stat.is_worker, stat.guest));
        assert_eq!(of(&numbers(4_210_688, 0)), Some((true, 0)));
        assert_eq!(of(&numbers(4_194_304, 55)), Some((false, 55)));
        assert_eq!((of(""), of("66 (x) S 1")), (None, None));
        let mine = fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert_eq!(of(&mine), Some((false, 0)));
    }

    proptest! {
        #[test]
        fn whatever_proc_says_is_something(text in ".{0,60}") {
            of(&text, "");
        }
    }
}
