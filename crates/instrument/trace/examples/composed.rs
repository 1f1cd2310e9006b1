//! A VMM that waits as it is told, and writes down when:
//!
//!     composed LOG [PLACE:KIND:MICROSECONDS]...
//!
//! PLACE is `before` the VM, `between` the VM and its vCPU, `after` the vCPU has run, or `beside`: on a thread that nobody waits
//! for, from the beginning on. The log has `wait KIND TID HELPER BEGIN END` of each wait that all else waited for, `beside KIND
//! TID` of each other, and `created AT`. HELPER is the thread that the wait was for, or 0. Times are nanoseconds of
//! `CLOCK_MONOTONIC`.

#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kvm_bindings::{kvm_regs, kvm_sregs, kvm_userspace_memory_region};
use libc::{c_int, c_ulong, c_void};

#[path = "planted/waits.rs"]
#[allow(dead_code, reason = "the other VMM waits in more ways")]
mod waits;

/// A way to wait for as long; gives the thread that it waited for, or 0.
type Wait = fn(Duration) -> i32;

const KINDS: [(&str, Wait); 13] = [
    ("sleep", sleeps),
    ("poll", polls),
    ("child", waits_for_child),
    ("mutex", waits_for_mutex),
    ("file-lock", waits_for_file_lock),
    ("pipe", reads_a_pipe),
    ("socket", reads_a_socket),
    ("eventfd", reads_an_eventfd),
    ("condition", waits_for_condition),
    ("join", joins),
    ("touch", touches),
    ("image", reads_an_image),
    ("compute", computes),
];

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn say(line: String) {
    LOG.lock().unwrap().push(line);
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn me() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

fn sleeps(time: Duration) -> i32 {
    thread::sleep(time);
    0
}

fn polls(time: Duration) -> i32 {
    let time = libc::timespec { tv_sec: 0, tv_nsec: time.as_nanos() as i64 };
    // SAFETY: no descriptors are given, and the time outlives the call.
    unsafe { libc::ppoll(std::ptr::null_mut(), 0, &raw const time, std::ptr::null()) };
    0
}

fn waits_for_child(time: Duration) -> i32 {
    waits::for_child(time);
    0
}

fn waits_for_mutex(time: Duration) -> i32 {
    waits::for_lock(time);
    0
}

fn waits_for_file_lock(time: Duration) -> i32 {
    waits::for_file(time);
    0
}

/// Has a thread sleep for as long, and then do something; gives its number.
fn later(time: Duration, then: impl FnOnce() + Send + 'static) -> (i32, thread::JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let helper = thread::spawn(move || {
        let _ = tell.send(me());
        thread::sleep(time);
        then();
    });
    (told.recv().unwrap(), helper)
}

fn reads_a_pipe(time: Duration) -> i32 {
    let (mut reads, mut writes) = std::io::pipe().unwrap();
    let (helper, _) = later(time, move || writes.write_all(&[1]).unwrap());
    reads.read_exact(&mut [0]).unwrap();
    helper
}

fn reads_a_socket(time: Duration) -> i32 {
    let (mut reads, mut writes) = UnixStream::pair().unwrap();
    let (helper, _) = later(time, move || writes.write_all(&[1]).unwrap());
    reads.read_exact(&mut [0]).unwrap();
    helper
}

fn reads_an_eventfd(time: Duration) -> i32 {
    // SAFETY: takes numbers; the descriptor is this program's to the end.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    let (one, mut word) = (1u64, 0u64);
    // SAFETY: reads a word of eight bytes that outlives the call.
    let (helper, _) = later(time, move || unsafe {
        libc::write(fd, (&raw const one).cast(), 8);
    });
    // SAFETY: writes a word of eight bytes that outlives the call.
    unsafe { libc::read(fd, (&raw mut word).cast(), 8) };
    helper
}

fn waits_for_condition(time: Duration) -> i32 {
    let both = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = Arc::clone(&both);
    let (helper, _) = later(time, move || {
        *theirs.0.lock().unwrap() = true;
        theirs.1.notify_one();
    });
    let held = both.0.lock().unwrap();
    drop(both.1.wait_while(held, |is_so| !*is_so).unwrap());
    helper
}

fn joins(time: Duration) -> i32 {
    let (helper, thread) = later(time, || ());
    thread.join().unwrap();
    helper
}

fn map(bytes: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, wherever there is room; its pages are small.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
        at.cast()
    }
}

/// Touches memory that is new, until the time is over.
fn touches(time: Duration) -> i32 {
    const MOST: usize = 2 << 30;
    let (begun, at) = (Instant::now(), map(MOST));
    for page in (0..MOST).step_by(4096) {
        if page % (16 << 12) == 0 && begun.elapsed() >= time {
            break;
        }
        // SAFETY: the mapping is ours, and as long.
        unsafe { at.add(page).write_volatile(1) };
    }
    0
}

/// Reads a file a page at a time, until the time is over, and a mebibyte at least.
fn reads_an_image(time: Duration) -> i32 {
    let mut source = File::open("/dev/urandom").unwrap();
    let (begun, mut page, mut read) = (Instant::now(), [0; 4096], 0);
    while begun.elapsed() < time || read < 1 << 20 {
        source.read_exact(&mut page).unwrap();
        read += page.len();
    }
    0
}

fn computes(time: Duration) -> i32 {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
    0
}

/// What is to be waited for: where, how, and how long.
struct Step {
    place: String,
    kind: &'static str,
    wait: Wait,
    time: Duration,
}

impl Step {
    fn read(text: &str) -> Self {
        let mut words = text.split(':');
        let mut word = || words.next().expect("PLACE:KIND:MICROSECONDS");
        let (place, kind, time) = (word().to_owned(), word(), word());
        let known = KINDS.iter().find(|(name, _)| *name == kind);
        let (kind, wait) = *known.unwrap_or_else(|| panic!("there is no {kind}"));
        Self { place, kind, wait, time: Duration::from_micros(time.parse().unwrap()) }
    }

    fn is_done(&self) {
        let begun = now();
        let helper = (self.wait)(self.time);
        say(format!("wait {} {} {helper} {begun} {}", self.kind, me(), now()));
    }
}

fn ioctl(fd: c_int, request: u64, argument: u64) -> c_int {
    loop {
        // SAFETY: each caller passes a number, or the address of the structure that the request is about.
        let result = unsafe { libc::ioctl(fd, request as c_ulong, argument) };
        if result >= 0 {
            return result;
        }
        // The kernel may have something for a thread to do that makes a VM.
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{request:#x}: {error}");
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let log = arguments.next().expect("LOG");
    let steps: Vec<Step> = arguments.map(|one| Step::read(&one)).collect();
    let at = |place: &str| steps.iter().filter(|step| step.place == place).collect::<Vec<_>>();
    for step in at("beside") {
        let (kind, wait, time) = (step.kind, step.wait, step.time);
        let (begun, begins) = mpsc::channel();
        thread::spawn(move || {
            say(format!("beside {kind} {}", me()));
            let _ = begun.send(());
            wait(time);
        });
        begins.recv().unwrap();
    }
    for step in at("before") {
        step.is_done();
    }
    let device = File::options().read(true).write(true).open("/dev/kvm").unwrap();
    say(format!("created {}", now()));
    let vm = ioctl(device.as_raw_fd(), 0xAE01, 0);
    let memory = map(1 << 16);
    // SAFETY: the mapping is ours; `hlt`.
    unsafe { memory.write(0xF4) };
    let region = kvm_userspace_memory_region {
        memory_size: 1 << 16,
        userspace_addr: memory as u64,
        ..kvm_userspace_memory_region::default()
    };
    ioctl(vm, 0x4020_AE46, &raw const region as u64);
    for step in at("between") {
        step.is_done();
    }
    let vcpu = ioctl(vm, 0xAE41, 0);
    let mut system = kvm_sregs::default();
    ioctl(vcpu, 0x8138_AE83, &raw mut system as u64);
    (system.cs.base, system.cs.selector) = (0, 0);
    ioctl(vcpu, 0x4138_AE84, &raw const system as u64);
    let registers = kvm_regs { rflags: 2, ..kvm_regs::default() };
    ioctl(vcpu, 0x4090_AE82, &raw const registers as u64);
    thread::spawn(move || ioctl(vcpu, 0xAE80, 0)).join().unwrap();
    for step in at("after") {
        step.is_done();
    }
    // SAFETY: each is closed once; nothing of ours points into the mapping.
    unsafe {
        libc::munmap(memory.cast::<c_void>(), 1 << 16);
        libc::close(vcpu);
        libc::close(vm);
    }
    let mut text = LOG.lock().unwrap().join("\n");
    text.push('\n');
    std::fs::write(log, text).unwrap();
    // Threads that nobody waits for end with the program.
}
