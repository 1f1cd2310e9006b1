//! The events that are asked for, and what each says.

use std::collections::HashMap;
use std::io;

use super::format::{Field, Format};
use super::place::Instance;

/// What an event says. The thread that it is about comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A system call begins.
    Enters { tid: i32, number: u64, arguments: [u64; 6] },
    /// It ends; what it returns, or the negative error number.
    Leaves { tid: i32, number: u64, result: i64 },
    /// A thread makes another, with these flags of `clone(2)`.
    Makes { maker: i32, tid: i32, flags: u64 },
    /// A program is executed, by a thread that had another number before.
    Executes { tid: i32, former: i32, program: String },
    /// A thread begins to end.
    Ends { tid: i32 },
    /// A thread gets a signal; whether it does with it what the kernel does by itself.
    Signal { tid: i32, signal: i32, default: bool },
    /// A processor goes from one thread to another. The first may be gone for good, or may go on when it is its turn.
    Switches { from: i32, goes_on: bool, gone: bool, to: i32 },
    /// A thread was woken, and the thread that woke it; none if that was an interrupt.
    Wakes { tid: i32, by: Option<i32> },
    /// A vCPU is entered.
    Guest { tid: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Enter,
    Exit,
    Make,
    Execute,
    End,
    Signal,
    Switch,
    Wake,
    Guest,
}

/// An event that is asked for: its name, which of its kind, and whether it must be there.
struct Asked {
    name: &'static str,
    filter: &'static str,
    kind: Kind,
    needed: bool,
}

const fn asked(name: &'static str, filter: &'static str, kind: Kind, needed: bool) -> Asked {
    Asked { name, filter, kind, needed }
}

/// When a vCPU is entered.
pub(super) const GUEST: &str = "kvm/kvm_entry";
/// A thread's state when it leaves its processor for good: `EXIT_DEAD`, `EXIT_ZOMBIE` (linux/sched.h).
const GONE: u64 = 0x10 | 0x20;
/// What its state may be of which it wakes up again, and what comes of it being preempted.
const WAITS: u64 = 0xFF;
/// In an event's flags: it is an interrupt's, and not the thread's that it came upon (`trace_flag_type`).
const INTERRUPT: u64 = 0x08 | 0x10;

/// Of the threads that are followed. The filters say no less than `calls` does.
const OF_OURS: &[Asked] = &[
    asked("syscalls/sys_enter_ioctl", "", Kind::Enter, true),
    asked("syscalls/sys_exit_ioctl", "", Kind::Exit, true),
    asked("syscalls/sys_enter_open", "flags & 3", Kind::Enter, false),
    asked("syscalls/sys_exit_open", "", Kind::Exit, false),
    asked("syscalls/sys_enter_openat", "flags & 3", Kind::Enter, true),
    asked("syscalls/sys_exit_openat", "", Kind::Exit, true),
    asked("syscalls/sys_enter_openat2", "", Kind::Enter, false),
    asked("syscalls/sys_exit_openat2", "", Kind::Exit, false),
    asked("syscalls/sys_enter_close", "", Kind::Enter, true),
    asked("syscalls/sys_exit_close", "", Kind::Exit, true),
    asked("syscalls/sys_enter_close_range", "", Kind::Enter, false),
    asked("syscalls/sys_exit_close_range", "", Kind::Exit, false),
    asked("syscalls/sys_enter_dup", "", Kind::Enter, true),
    asked("syscalls/sys_exit_dup", "", Kind::Exit, true),
    asked("syscalls/sys_enter_dup2", "", Kind::Enter, false),
    asked("syscalls/sys_exit_dup2", "", Kind::Exit, false),
    asked("syscalls/sys_enter_dup3", "", Kind::Enter, true),
    asked("syscalls/sys_exit_dup3", "", Kind::Exit, true),
    asked("syscalls/sys_enter_fcntl", "cmd == 0 || cmd == 1030", Kind::Enter, true),
    asked("syscalls/sys_exit_fcntl", "", Kind::Exit, true),
    asked("syscalls/sys_enter_mmap", "len >= 1048576 || flags & 1", Kind::Enter, true),
    asked("syscalls/sys_exit_mmap", "", Kind::Exit, true),
    asked("syscalls/sys_enter_munmap", "len >= 8192", Kind::Enter, true),
    asked("syscalls/sys_exit_munmap", "", Kind::Exit, true),
    asked("syscalls/sys_enter_madvise", "len_in >= 1048576", Kind::Enter, true),
    asked("syscalls/sys_exit_madvise", "", Kind::Exit, true),
    asked("syscalls/sys_enter_mremap", "old_len >= 1048576", Kind::Enter, false),
    asked("syscalls/sys_exit_mremap", "", Kind::Exit, false),
    asked("syscalls/sys_enter_mlock", "len >= 1048576", Kind::Enter, false),
    asked("syscalls/sys_exit_mlock", "", Kind::Exit, false),
    asked("syscalls/sys_enter_mlock2", "len >= 1048576", Kind::Enter, false),
    asked("syscalls/sys_exit_mlock2", "", Kind::Exit, false),
    asked("syscalls/sys_enter_nanosleep", "", Kind::Enter, false),
    asked("syscalls/sys_exit_nanosleep", "", Kind::Exit, false),
    asked("syscalls/sys_enter_clock_nanosleep", "", Kind::Enter, true),
    asked("syscalls/sys_exit_clock_nanosleep", "", Kind::Exit, true),
    asked("syscalls/sys_enter_accept", "", Kind::Enter, false),
    asked("syscalls/sys_exit_accept", "", Kind::Exit, false),
    asked("syscalls/sys_enter_accept4", "", Kind::Enter, false),
    asked("syscalls/sys_exit_accept4", "", Kind::Exit, false),
    asked("syscalls/sys_enter_exit", "", Kind::Enter, true),
    asked("syscalls/sys_enter_exit_group", "", Kind::Enter, true),
    // How much of an image has been read. Less than a page is none.
    asked("syscalls/sys_exit_read", "ret >= 4096", Kind::Exit, false),
    asked("syscalls/sys_exit_pread64", "ret >= 4096", Kind::Exit, false),
    asked("syscalls/sys_exit_readv", "ret >= 4096", Kind::Exit, false),
    asked("syscalls/sys_exit_preadv", "ret >= 4096", Kind::Exit, false),
    asked("task/task_newtask", "", Kind::Make, true),
    asked("sched/sched_process_exec", "", Kind::Execute, true),
    asked("sched/sched_process_exit", "", Kind::End, true),
    asked("signal/signal_deliver", "", Kind::Signal, false),
    asked("sched/sched_switch", "", Kind::Switch, true),
    asked("sched/sched_waking", "", Kind::Wake, false),
    asked("sched/sched_wakeup_new", "", Kind::Wake, false),
    asked(GUEST, "", Kind::Guest, false),
];

/// Of all threads of the host.
const OF_ALL: &[Asked] = &[asked("sched/sched_switch", "prev_state & 0x30", Kind::Switch, true)];

/// How to read the events of an instance.
pub(super) struct Decoder {
    events: HashMap<u16, (Kind, Vec<Field>, Option<Field>)>,
    pid: Field,
    kind: Field,
    flags: Option<Field>,
}

impl Decoder {
    /// Asks for the events of the threads that are followed.
    pub(super) fn of_ours(instance: &Instance) -> io::Result<Self> {
        Self::of(instance, OF_OURS)
    }

    /// Asks for the ends of all threads.
    pub(super) fn of_all(instance: &Instance) -> io::Result<Self> {
        Self::of(instance, OF_ALL)
    }

    fn of(instance: &Instance, asked: &[Asked]) -> io::Result<Self> {
        let mut events = HashMap::new();
        let (mut common, mut flags) = (None, None);
        let mut names = String::new();
        for Asked { name, filter, kind, needed } in asked {
            if !instance.has(name) {
                if *needed {
                    return Err(unknown(name));
                }
                continue;
            }
            let format = Format::parse(&instance.text(&format!("events/{name}/format"))?)
                .ok_or_else(|| unknown(name))?;
            if !filter.is_empty() {
                instance.write(&format!("events/{name}/filter"), filter)?;
            }
            let fields = fields(*kind, &format).ok_or_else(|| unknown(name))?;
            common = common.or(format.field("common_pid").zip(format.field("common_type")));
            flags = flags.or(format.field("common_flags"));
            let text = format.field("filename").filter(|_| *kind == Kind::Execute);
            events.insert(format.id, (*kind, fields, text));
            names.push_str(&name.replace('/', ":"));
            names.push('\n');
        }
        let (pid, kind) = common.ok_or_else(|| unknown("events"))?;
        for name in names.lines() {
            instance.write("set_event", &format!("{name}\n"))?;
        }
        Ok(Self { events, pid, kind, flags })
    }

    /// What an event says; none where it is none that was asked for.
    pub(super) fn event(&self, content: &[u8]) -> Option<Event> {
        let (kind, fields, text) = self.events.get(&(self.kind.of(content)? as u16))?;
        let tid = self.pid.of(content)? as i32;
        let value = |at: usize| fields.get(at)?.of(content);
        let thread = |at: usize| value(at).map(|value| value as i32);
        Some(match kind {
            Kind::Enter => {
                let mut arguments = [0; 6];
                for (at, argument) in arguments.iter_mut().enumerate() {
                    *argument = value(at + 1).unwrap_or(0);
                }
                Event::Enters { tid, number: value(0)?, arguments }
            }
            Kind::Exit => Event::Leaves { tid, number: value(0)?, result: value(1)? as i64 },
            Kind::Make => Event::Makes { maker: tid, tid: thread(0)?, flags: value(1)? },
            Kind::Execute => {
                let program = text.and_then(|text| text.text(content)).unwrap_or_default();
                Event::Executes { tid: thread(0)?, former: thread(1)?, program }
            }
            Kind::End => Event::Ends { tid },
            Kind::Signal => Event::Signal { tid, signal: thread(0)?, default: value(1)? == 0 },
            Kind::Switch => {
                let state = value(1)?;
                let (goes_on, gone) = (state & WAITS == 0, state & GONE != 0);
                Event::Switches { from: thread(0)?, goes_on, gone, to: thread(2)? }
            }
            Kind::Wake => {
                let flags = self.flags.as_ref().and_then(|flags| flags.of(content));
                let by = flags.is_none_or(|flags| flags & INTERRUPT == 0).then_some(tid);
                Event::Wakes { tid: thread(0)?, by }
            }
            Kind::Guest => Event::Guest { tid },
        })
    }
}

/// The fields of an event that are looked at, in order; none where it lacks one.
fn fields(kind: Kind, format: &Format) -> Option<Vec<Field>> {
    let names: &[&str] = match kind {
        Kind::Enter => {
            let number = format.field("__syscall_nr")?;
            return Some([number].into_iter().chain(format.arguments()).collect());
        }
        Kind::Exit => &["__syscall_nr", "ret"],
        Kind::Make => &["pid", "clone_flags"],
        Kind::Execute => &["pid", "old_pid"],
        Kind::Signal => &["sig", "sa_handler"],
        Kind::Switch => &["prev_pid", "prev_state", "next_pid"],
        Kind::Wake => &["pid"],
        Kind::End | Kind::Guest => &[],
    };
    names.iter().map(|name| format.field(name)).collect()
}

fn unknown(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("this kernel has no event {name}"))
}
