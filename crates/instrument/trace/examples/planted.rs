//! A VMM with waits planted in it: each argument is one, with its size, and the truth about its calls goes to a file.
//!
//!     planted [log=FILE] [memory=MIB] [CAUSE=SIZE]...
//!
//! Without a cause it does all in the order that waits least. Sizes are milliseconds, mebibytes or a number, as the cause
//! has it; see `Plan`.

// The kernel's words are signed here and unsigned there.
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

#[path = "planted/guest.rs"]
mod guest;
#[path = "planted/memory.rs"]
mod memory;
#[path = "planted/probe.rs"]
mod probe;
#[path = "planted/waits.rs"]
mod waits;

use guest::Journal;
use kvm_bindings::{kvm_ioeventfd, kvm_regs, kvm_sregs};
use libc::{c_int, c_ulong, c_void};

/// What may be planted, and what its size is.
const PLANTS: [(&str, &str); 34] = [
    ("memory", "mebibytes of guest memory; 4 unless it is said"),
    ("vcpus", "vCPUs, created one after the other; 1 unless it is said"),
    ("irqchip", "1: an irqchip comes right before the memory"),
    ("unregister", "1: an ioeventfd is taken away right after it was registered"),
    ("slot", "gibibytes of a memslot that nobody touches"),
    ("dirty", "gibibytes of a memslot whose dirty log starts, and stops"),
    ("probe", "1: a VM is made and closed before the one that runs"),
    ("maps", "mappings that the process has before its VM"),
    ("sleep", "milliseconds of sleep before the vCPUs"),
    ("shorts", "sleeps of a millisecond, one after the other, before the VM"),
    (
        "turns",
        "turns in which another thread sleeps for a millisecond, and this one reads from a pipe, before the VM",
    ),
    ("populate", "mebibytes that are populated where they are mapped"),
    ("unmap", "mebibytes that are touched, and unmapped before the end"),
    ("leave", "mebibytes that are touched, and left to the end of the process"),
    (
        "visit",
        "mebibytes of its memory that the guest touches, a page at a time; `memory` is to have as many, and one more",
    ),
    ("after", "mebibytes that the vCPU's thread touches when its guest is over"),
    ("poll", "milliseconds between two looks at whether the vCPU's thread has ended"),
    ("kick", "milliseconds until a vCPU that has not listened is kicked again"),
    ("spin", "milliseconds for which the guest runs, and never leaves by itself"),
    ("fault", "milliseconds that a page of the guest's takes to come, by userfaultfd"),
    ("pages", "pages of the guest's that come by userfaultfd, a millisecond each"),
    ("restore", "pages that the guest reads of a file, as of a snapshot, which is not in memory"),
    (
        "exits",
        "exits of the guest at which its thread writes to a file and waits until it is written",
    ),
    ("image", "mebibytes of an image that is read a little at a time"),
    ("compute", "milliseconds of computing, on a processor, right after the image was read"),
    ("abandon", "1: the VM's descriptors and mappings are left to the end of the process"),
    ("client", "milliseconds after which a client connects, for which all else waits"),
    ("asked", "milliseconds until it comes to a probe of its own, before all else"),
    ("child", "milliseconds of a wait for a child, before the VM is created"),
    ("lock", "the same for a mutex that another thread has"),
    ("file", "the same for a lock on a file"),
    ("stop", "the same for a signal that lets the stopped process go on"),
    ("notify", "the same for who answers a system call in the kernel's place"),
    ("hold", "milliseconds for which a process that was forked holds the VM when all else is over"),
];

/// What is asked for. Nothing of it is there unless it is said.
struct Plan {
    log: Option<String>,
    sizes: BTreeMap<&'static str, u64>,
}

impl Plan {
    fn of(&self, name: &str) -> u64 {
        assert!(PLANTS.iter().any(|(plant, _)| *plant == name), "there is no {name}");
        self.sizes.get(name).copied().unwrap_or(0)
    }

    fn is(&self, name: &str) -> bool {
        self.of(name) > 0
    }

    fn read(arguments: impl Iterator<Item = String>) -> Self {
        let mut plan = Self { log: None, sizes: [("memory", 4), ("vcpus", 1)].into() };
        for argument in arguments {
            let (name, value) = argument.split_once('=').expect("NAME=VALUE");
            if name == "log" {
                plan.log = Some(value.to_owned());
                continue;
            }
            let known = PLANTS.iter().find(|(plant, _)| *plant == name);
            let (plant, meaning) = known.unwrap_or_else(|| panic!("there is no {name}"));
            let number = value.parse().unwrap_or_else(|_| panic!("{name} is {meaning}"));
            plan.sizes.insert(plant, number);
        }
        plan
    }
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Calls, and writes down that it did.
fn ioctl(fd: c_int, name: &str, request: u64, argument: u64) -> c_int {
    // SAFETY: each caller passes a number, or the address of the structure that the request is about.
    let result = unsafe { libc::ioctl(fd, request as c_ulong, argument) };
    LOG.lock().unwrap().push(format!("{name} {fd} {result}"));
    assert!(result >= 0, "{name}: {}", std::io::Error::last_os_error());
    result
}

fn close(fd: c_int) {
    // SAFETY: each descriptor is closed once, by whoever made it.
    let result = unsafe { libc::close(fd) };
    LOG.lock().unwrap().push(format!("close {fd} {result}"));
}

/// Runs the guest until it leaves, or until it is to stop; again and again where its exits are kept in a journal.
fn run(vcpu: c_int, stop: &AtomicBool, mut journal: Option<Journal>) {
    loop {
        // SAFETY: KVM_RUN takes 0.
        let result = unsafe { libc::ioctl(vcpu, 0xAE80, 0) };
        if stop.load(Ordering::Acquire) {
            return;
        }
        if result == 0 {
            if journal.as_mut().is_some_and(Journal::goes_on) {
                continue;
            }
            let slept = journal.map(|journal| format!("journal {}", journal.slept.as_micros()));
            LOG.lock().unwrap().extend(slept);
            return;
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "KVM_RUN: {error}");
    }
}

fn main() {
    let plan = Plan::read(std::env::args().skip(1));
    live(&plan);
    if let Some(log) = &plan.log {
        let mut text = LOG.lock().unwrap().join("\n");
        text.push('\n');
        fs::File::create(log).unwrap().write_all(text.as_bytes()).unwrap();
    }
}

fn live(plan: &Plan) {
    if plan.is("client") {
        waits::for_client(plan.of("client"));
    }
    if plan.is("asked") {
        thread::sleep(Duration::from_millis(plan.of("asked")));
        LOG.lock().unwrap().push(format!("listened {}", probe::asked()));
    }
    for (plant, wait) in [
        ("child", (|time| waits::for_child(Duration::from_millis(time))) as fn(u64)),
        ("lock", |time| waits::for_lock(Duration::from_millis(time))),
        ("file", |time| waits::for_file(Duration::from_millis(time))),
        ("shorts", waits::in_short_sleeps),
        ("turns", waits::in_turns),
        ("stop", waits::stopped),
        ("notify", waits::answered_late),
    ] {
        if plan.is(plant) {
            wait(plan.of(plant));
        }
    }
    memory::many_mappings(plan.of("maps"));
    let device = CString::new("/dev/kvm").unwrap();
    // SAFETY: the name ends with a NUL and outlives the call.
    let kvm = unsafe { libc::open(device.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    LOG.lock().unwrap().push(format!("open /dev/kvm {kvm}"));
    ioctl(kvm, "KVM_GET_API_VERSION", 0xAE00, 0);
    let area = ioctl(kvm, "KVM_GET_VCPU_MMAP_SIZE", 0xAE04, 0);
    if plan.is("probe") {
        close(ioctl(kvm, "KVM_CREATE_VM", 0xAE01, 0));
    }
    let vm = ioctl(kvm, "KVM_CREATE_VM", 0xAE01, 0);
    if plan.is("irqchip") {
        ioctl(vm, "KVM_CREATE_IRQCHIP", 0xAE60, 0);
    }
    let (memory, touched) = memory::give(plan, vm);
    let code = guest::code(plan);
    // SAFETY: the mapping is ours, and longer.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory as *mut u8, code.len()) };
    if plan.is("sleep") {
        thread::sleep(Duration::from_millis(plan.of("sleep")));
    }
    let (vcpus, shared) = create_vcpus(plan, vm, area as usize);
    if plan.is("unregister") {
        unregister(vm);
    }
    if plan.is("fault") {
        guest::late_page(memory, plan.of("fault"));
    }
    if plan.is("pages") {
        guest::late_pages(memory, plan.of("pages"));
    }
    run_guest(plan, vcpus[0]);
    if let Some(touched) = touched {
        // SAFETY: nothing of ours points into the mapping any more; what the guest has of it goes with it.
        unsafe { libc::munmap(touched as *mut c_void, (plan.of("unmap") << 20) as usize) };
    }
    if plan.is("abandon") {
        return;
    }
    // SAFETY: nothing of ours points into it.
    unsafe { libc::munmap(shared, area as usize) };
    if plan.is("hold") {
        hold(plan.of("hold"), &vcpus, vm);
    }
    vcpus.into_iter().for_each(close);
    close(vm);
    close(kvm);
}

/// Creates the vCPUs; gives them, and where the state of the first one's runs is mapped.
fn create_vcpus(plan: &Plan, vm: c_int, area: usize) -> (Vec<c_int>, *mut c_void) {
    let vcpus: Vec<c_int> =
        (0..plan.of("vcpus")).map(|id| ioctl(vm, "KVM_CREATE_VCPU", 0xAE41, id)).collect();
    let first = vcpus[0];
    // SAFETY: a mapping of its own, wherever there is room.
    let shared = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), area, protection, libc::MAP_SHARED, first, 0)
    };
    let mut system = kvm_sregs::default();
    ioctl(first, "KVM_GET_SREGS", 0x8138_AE83, &raw mut system as u64);
    (system.cs.base, system.cs.selector) = (0, 0);
    if plan.is("visit") {
        guest::reaches_all(&mut system);
    }
    ioctl(first, "KVM_SET_SREGS", 0x4138_AE84, &raw const system as u64);
    let registers = kvm_regs { rflags: 2, ..kvm_regs::default() };
    ioctl(first, "KVM_SET_REGS", 0x4090_AE82, &raw const registers as u64);
    (vcpus, shared)
}

/// Has a thread run the guest until it is told to end, and sees to it that it does.
fn run_guest(plan: &Plan, vcpu: c_int) {
    static STOP: AtomicBool = AtomicBool::new(false);
    static DONE: AtomicU32 = AtomicU32::new(0);
    static RUNNER: AtomicI32 = AtomicI32::new(0);
    static KICKS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn kicked(_: c_int) {
        KICKS.fetch_add(1, Ordering::Release);
    }
    // SAFETY: the handler counts, and does nothing else; without SA_RESTART a run that it interrupts ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = kicked as *const () as usize;
        libc::sigaction(libc::SIGRTMIN(), &raw const action, std::ptr::null_mut());
    }
    let is_kicked = plan.is("kick");
    let journal = plan.is("exits").then(|| Journal::of(plan.of("exits")));
    let after = plan.of("after");
    let runner = thread::spawn(move || {
        // SAFETY: takes nothing.
        RUNNER.store(unsafe { libc::gettid() }, Ordering::Release);
        // The kick comes when the guest is not run yet, and nobody has looked whether to.
        while is_kicked && KICKS.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        run(vcpu, &STOP, journal);
        memory::touch_new(after << 20);
        DONE.store(1, Ordering::Release);
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: wakes who waits on a word that lives as long as the program.
        unsafe { libc::syscall(libc::SYS_futex, DONE.as_ptr(), wake, 1) };
    });
    let pause = plan.of("kick").max(plan.of("spin"));
    if pause > 0 {
        while RUNNER.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: (pause * 1_000_000) as i64 };
        // SAFETY: signals a thread that is there until it is joined; waits on a word that lives as long as the
        // program, no longer than `time`.
        unsafe {
            let kick = || {
                let (group, tid) = (libc::getpid(), RUNNER.load(Ordering::Acquire));
                libc::syscall(libc::SYS_tgkill, group, tid, libc::SIGRTMIN());
            };
            if is_kicked {
                kick();
            }
            let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // On a host that is busy the next may be lost, too.
            while DONE.load(Ordering::Acquire) == 0 {
                libc::syscall(libc::SYS_futex, DONE.as_ptr(), wait, 0, &raw const time);
                if DONE.load(Ordering::Acquire) == 0 {
                    STOP.store(true, Ordering::Release);
                    kick();
                }
            }
        }
    }
    if plan.is("poll") {
        while DONE.load(Ordering::Acquire) == 0 {
            thread::sleep(Duration::from_millis(plan.of("poll")));
        }
    }
    runner.join().unwrap();
}

/// Forks a process that has the VM's descriptors as long, and closes them.
fn hold(milliseconds: u64, vcpus: &[c_int], vm: c_int) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: (milliseconds * 1_000_000) as i64 };
    // SAFETY: the child calls the kernel alone, needs no lock that another thread may have had, and never returns.
    unsafe {
        if libc::fork() == 0 {
            libc::nanosleep(&raw const time, std::ptr::null_mut());
            for fd in vcpus {
                libc::close(*fd);
            }
            libc::close(vm);
            libc::_exit(0);
        }
    }
}

/// An ioeventfd that comes and goes.
fn unregister(vm: c_int) {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    let mut event = kvm_ioeventfd { addr: 0xD000_0000, len: 4, fd, ..kvm_ioeventfd::default() };
    ioctl(vm, "KVM_IOEVENTFD", 0x4040_AE79, &raw const event as u64);
    event.flags = 4;
    ioctl(vm, "KVM_IOEVENTFD", 0x4040_AE79, &raw const event as u64);
    // SAFETY: nobody else has it.
    unsafe { libc::close(fd) };
}
