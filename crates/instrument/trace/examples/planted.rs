//! A VMM with waits planted in it: each argument is one, with its size, and the truth about its calls goes to a file.
//!
//!     planted [log=FILE] [memory=MIB] [CAUSE=SIZE]...
//!
//! Without a cause it does all in the order that waits least. Sizes are milliseconds, mebibytes or a number, as the cause
//! has it; see `Plan`.

// The kernel's words are signed here and unsigned there.
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)]

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

#[path = "planted/waits.rs"]
mod waits;

use kvm_bindings::{kvm_ioeventfd, kvm_regs, kvm_sregs, kvm_userspace_memory_region};
use libc::{c_int, c_ulong, c_void};

/// What is asked for. Nothing of it is there unless it is said.
#[derive(Default)]
struct Plan {
    log: Option<String>,
    /// Mebibytes of guest memory.
    memory: u64,
    /// vCPUs, created one after the other.
    vcpus: u64,
    /// An irqchip comes right before the memory.
    irqchip: u64,
    /// An ioeventfd is taken away right after it was registered.
    unregister: u64,
    /// Gibibytes of a memslot that nobody touches.
    slot: u64,
    /// Milliseconds of sleep before the vCPUs.
    sleep: u64,
    /// Mebibytes that are populated where they are mapped.
    populate: u64,
    /// Mebibytes that are touched, and unmapped before the end.
    unmap: u64,
    /// Mebibytes that are touched, and left to the end of the process.
    leave: u64,
    /// Milliseconds between two looks at whether the vCPU's thread has ended.
    poll: u64,
    /// Milliseconds until a vCPU that has not listened is kicked again.
    kick: u64,
    /// Milliseconds that a page of the guest's takes to come, by userfaultfd.
    fault: u64,
    /// Mebibytes of an image that is read a little at a time.
    image: u64,
    /// The VM's descriptors and mappings are left to the end of the process.
    abandon: u64,
    /// Milliseconds after which a client connects, for which all else waits.
    client: u64,
    /// Milliseconds of a wait for a child, before the VM is created.
    child: u64,
    /// The same for a mutex that another thread has.
    lock: u64,
    /// The same for a lock on a file.
    file: u64,
    /// Milliseconds for which a process that was forked holds the VM when all else is over.
    hold: u64,
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

fn map(bytes: u64, flags: c_int) -> u64 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, wherever there is room.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

fn touch(at: u64, bytes: u64) {
    // SAFETY: the mapping is ours, and as long; its pages are small, so that there are many.
    unsafe {
        libc::madvise(at as *mut c_void, bytes as usize, libc::MADV_NOHUGEPAGE);
        for page in (0..bytes).step_by(4096) {
            ((at + page) as *mut u8).write_volatile(1);
        }
    }
}

/// Runs the guest, which writes to a port, or spins where it is to be kicked.
fn run(vcpu: c_int, stop: &AtomicBool) {
    loop {
        // SAFETY: KVM_RUN takes 0.
        let result = unsafe { libc::ioctl(vcpu, 0xAE80, 0) };
        if result == 0 || stop.load(Ordering::Acquire) {
            return;
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "KVM_RUN: {error}");
    }
}

fn main() {
    let mut plan = Plan { memory: 4, vcpus: 1, ..Plan::default() };
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').expect("NAME=VALUE");
        let number = || value.parse().expect("a number");
        match name {
            "log" => plan.log = Some(value.to_owned()),
            "memory" => plan.memory = number(),
            "vcpus" => plan.vcpus = number(),
            "irqchip" => plan.irqchip = number(),
            "unregister" => plan.unregister = number(),
            "slot" => plan.slot = number(),
            "sleep" => plan.sleep = number(),
            "populate" => plan.populate = number(),
            "unmap" => plan.unmap = number(),
            "leave" => plan.leave = number(),
            "poll" => plan.poll = number(),
            "kick" => plan.kick = number(),
            "fault" => plan.fault = number(),
            "image" => plan.image = number(),
            "abandon" => plan.abandon = number(),
            "client" => plan.client = number(),
            "child" => plan.child = number(),
            "lock" => plan.lock = number(),
            "file" => plan.file = number(),
            "hold" => plan.hold = number(),
            other => panic!("there is no {other}"),
        }
    }
    live(&plan);
    if let Some(log) = &plan.log {
        let mut text = LOG.lock().unwrap().join("\n");
        text.push('\n');
        fs::File::create(log).unwrap().write_all(text.as_bytes()).unwrap();
    }
}

fn live(plan: &Plan) {
    if plan.client > 0 {
        waits::for_client(plan.client);
    }
    for (time, wait) in [
        (plan.child, waits::for_child as fn(u64)),
        (plan.lock, waits::for_lock),
        (plan.file, waits::for_file),
    ] {
        if time > 0 {
            wait(time);
        }
    }
    let device = CString::new("/dev/kvm").unwrap();
    // SAFETY: the name ends with a NUL and outlives the call.
    let kvm = unsafe { libc::open(device.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    LOG.lock().unwrap().push(format!("open /dev/kvm {kvm}"));
    ioctl(kvm, "KVM_GET_API_VERSION", 0xAE00, 0);
    let area = ioctl(kvm, "KVM_GET_VCPU_MMAP_SIZE", 0xAE04, 0);
    let vm = ioctl(kvm, "KVM_CREATE_VM", 0xAE01, 0);
    if plan.irqchip > 0 {
        ioctl(vm, "KVM_CREATE_IRQCHIP", 0xAE60, 0);
    }
    let bytes = plan.memory << 20;
    let memory = map(bytes, 0);
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: bytes,
        userspace_addr: memory,
    };
    ioctl(vm, "KVM_SET_USER_MEMORY_REGION", 0x4020_AE46, &raw const region as u64);
    if plan.slot > 0 {
        let third = kvm_userspace_memory_region {
            slot: 2,
            flags: 0,
            guest_phys_addr: 1 << 36,
            memory_size: plan.slot << 30,
            userspace_addr: map(plan.slot << 30, 0),
        };
        ioctl(vm, "KVM_SET_USER_MEMORY_REGION", 0x4020_AE46, &raw const third as u64);
    }
    if plan.image > 0 {
        load(plan.image);
    }
    if plan.populate > 0 {
        map(plan.populate << 20, libc::MAP_POPULATE);
    }
    let touched = (plan.unmap > 0).then(|| map(plan.unmap << 20, 0));
    if let Some(touched) = touched {
        touch(touched, plan.unmap << 20);
        let second = kvm_userspace_memory_region {
            slot: 1,
            flags: 0,
            guest_phys_addr: 1 << 32,
            memory_size: plan.unmap << 20,
            userspace_addr: touched,
        };
        ioctl(vm, "KVM_SET_USER_MEMORY_REGION", 0x4020_AE46, &raw const second as u64);
    }
    if plan.leave > 0 {
        touch(map(plan.leave << 20, 0), plan.leave << 20);
    }
    // `mov $0, %al; out %al, $16`, or a loop of one instruction.
    let code: &[u8] = if plan.kick > 0 { &[0xEB, 0xFE] } else { &[0xB0, 0, 0xE6, 16] };
    // SAFETY: the mapping is ours, and longer.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory as *mut u8, code.len()) };
    if plan.sleep > 0 {
        thread::sleep(Duration::from_millis(plan.sleep));
    }
    let vcpus: Vec<c_int> =
        (0..plan.vcpus).map(|id| ioctl(vm, "KVM_CREATE_VCPU", 0xAE41, id)).collect();
    let first = vcpus[0];
    // SAFETY: a mapping of its own, wherever there is room.
    let shared = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), area as usize, protection, libc::MAP_SHARED, first, 0)
    };
    let mut system = kvm_sregs::default();
    ioctl(first, "KVM_GET_SREGS", 0x8138_AE83, &raw mut system as u64);
    (system.cs.base, system.cs.selector) = (0, 0);
    ioctl(first, "KVM_SET_SREGS", 0x4138_AE84, &raw const system as u64);
    let registers = kvm_regs { rflags: 2, ..kvm_regs::default() };
    ioctl(first, "KVM_SET_REGS", 0x4090_AE82, &raw const registers as u64);
    if plan.unregister > 0 {
        unregister(vm);
    }
    let faults = (plan.fault > 0).then(|| late_pages(memory, plan.fault));
    run_guest(plan, first);
    drop(faults);
    if let Some(touched) = touched {
        // SAFETY: nothing of ours points into the mapping any more; what the guest has of it goes with it.
        unsafe { libc::munmap(touched as *mut c_void, (plan.unmap << 20) as usize) };
    }
    if plan.abandon > 0 {
        return;
    }
    // SAFETY: nothing of ours points into it.
    unsafe { libc::munmap(shared, area as usize) };
    if plan.hold > 0 {
        hold(plan.hold, &vcpus, vm);
    }
    vcpus.into_iter().for_each(close);
    close(vm);
    close(kvm);
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
    let is_kicked = plan.kick > 0;
    let runner = thread::spawn(move || {
        // SAFETY: takes nothing.
        RUNNER.store(unsafe { libc::gettid() }, Ordering::Release);
        // The kick comes when the guest is not run yet, and nobody has looked whether to.
        while is_kicked && KICKS.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        run(vcpu, &STOP);
        DONE.store(1, Ordering::Release);
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: wakes who waits on a word that lives as long as the program.
        unsafe { libc::syscall(libc::SYS_futex, DONE.as_ptr(), wake, 1) };
    });
    if plan.kick > 0 {
        while RUNNER.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: (plan.kick * 1_000_000) as i64 };
        // SAFETY: signals a thread that is there until it is joined; waits on a word that lives as long as the
        // program, no longer than `time`.
        unsafe {
            let kick = || {
                let (group, tid) = (libc::getpid(), RUNNER.load(Ordering::Acquire));
                libc::syscall(libc::SYS_tgkill, group, tid, libc::SIGRTMIN());
            };
            kick();
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
    if plan.poll > 0 {
        while DONE.load(Ordering::Acquire) == 0 {
            thread::sleep(Duration::from_millis(plan.poll));
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

/// Reads as much, in pieces of a page.
fn load(mebibytes: u64) {
    use std::io::Read as _;
    let mut source = fs::File::open("/dev/urandom").unwrap();
    let mut page = [0; 4096];
    for _ in 0..mebibytes << 8 {
        source.read_exact(&mut page).unwrap();
    }
}

/// Gives the guest's first page by userfaultfd, `late` milliseconds after it is wanted.
fn late_pages(memory: u64, late: u64) -> thread::JoinHandle<()> {
    const API: u64 = 0xC018_AA3F;
    const REGISTER: u64 = 0xC020_AA00;
    const COPY: u64 = 0xC028_AA03;
    // SAFETY: takes a number.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) } as c_int;
    assert!(fd >= 0, "userfaultfd: {}", std::io::Error::last_os_error());
    let code = [0xB0u8, 0, 0xE6, 16];
    // SAFETY: the page is ours, and becomes absent; each structure is what the request is about.
    unsafe {
        let call = |request: u64, argument: *mut u64| {
            let result = libc::ioctl(fd, request as c_ulong, argument);
            assert_eq!(result, 0, "userfaultfd: {}", std::io::Error::last_os_error());
        };
        call(API, [0xAAu64, 0, 0].as_mut_ptr());
        libc::madvise(memory as *mut c_void, 4096, libc::MADV_DONTNEED);
        call(REGISTER, [memory, 4096, 1, 0].as_mut_ptr());
    }
    thread::spawn(move || {
        let mut page = vec![0u8; 4096];
        page[..code.len()].copy_from_slice(&code);
        let mut message = [0u8; 32];
        // SAFETY: the message is as long as the kernel's; the page is copied from ours, which outlives the call.
        unsafe {
            libc::read(fd, message.as_mut_ptr().cast(), message.len());
            thread::sleep(Duration::from_millis(late));
            let mut copy = [memory, page.as_ptr() as u64, 4096, 0, 0];
            libc::ioctl(fd, COPY as c_ulong, copy.as_mut_ptr());
        }
    })
}
