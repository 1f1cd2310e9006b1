//! Guests: what a vCPU executes, what serves its pages, and what its thread does when it leaves.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use kvm_bindings::{kvm_segment, kvm_sregs};
use libc::{c_int, c_ulong, c_void};

use super::Plan;

/// Where the pages begin that a guest reads, one after the other, and how many there may be: real mode reaches no further.
const PAGES: u64 = 0x1_0000;
const MOST_PAGES: u64 = 200;
const PAGE: u64 = 4096;

/// What the guest executes, and leaves by: `mov $0, %al; out %al, $16`.
const LEAVES: [u8; 4] = [0xB0, 0, 0xE6, 16];
/// A loop of one instruction.
const SPINS: [u8; 2] = [0xEB, 0xFE];
/// `out %al, $16`, and again.
const EXITS: [u8; 4] = [0xE6, 16, 0xEB, 0xFC];

/// The code of the guest that is planned.
pub(crate) fn code(plan: &Plan) -> Vec<u8> {
    let pages = plan.of("pages").max(plan.of("restore"));
    match () {
        () if plan.is("kick") || plan.is("spin") => SPINS.to_vec(),
        () if plan.is("exits") => EXITS.to_vec(),
        () if pages > 0 => reads(pages),
        () if plan.is("visit") => visits(plan.of("visit") << 8),
        () => LEAVES.to_vec(),
    }
}

/// Reads a byte of each page, and leaves.
fn reads(pages: u64) -> Vec<u8> {
    assert!(pages <= MOST_PAGES, "no more than {MOST_PAGES} pages");
    let (segment, count) = ((PAGES >> 4) as u16, pages as u16);
    // mov $segment, %ax; mov $count, %cx; mov %ax, %ds; mov (0), %bl; add $0x100, %ax; loop
    let mut code = vec![0xB8];
    code.extend(segment.to_le_bytes());
    code.push(0xB9);
    code.extend(count.to_le_bytes());
    code.extend([0x8E, 0xD8, 0x8A, 0x1E, 0, 0, 0x05, 0, 0x01, 0xE2, 0xF5]);
    code.extend(LEAVES);
    code
}

/// Writes to each of so many pages, from the second mebibyte on, and leaves.
fn visits(pages: u64) -> Vec<u8> {
    // mov $0x100000, %edi; mov $pages, %ecx; mov %ecx, (%edi); add $0x1000, %edi; loop
    let mut code = vec![0xBF, 0, 0, 0x10, 0, 0xB9];
    code.extend((pages as u32).to_le_bytes());
    code.extend([0x89, 0x0F, 0x81, 0xC7, 0, 0x10, 0, 0, 0xE2, 0xF6]);
    code.extend(LEAVES);
    code
}

/// Has a vCPU begin where it reaches four gibibytes, in 32-bit mode without pages of its own.
pub(crate) fn reaches_all(system: &mut kvm_sregs) {
    let data = kvm_segment {
        limit: u32::MAX,
        type_: 3,
        present: 1,
        s: 1,
        db: 1,
        g: 1,
        ..kvm_segment::default()
    };
    (system.ds, system.es, system.ss) = (data, data, data);
    system.cs = kvm_segment { type_: 0xB, ..data };
    system.cr0 |= 1;
}

/// A file that is gone by its name, beside the program.
fn scratch(name: &str) -> File {
    let program = std::env::current_exe().unwrap();
    let name = format!("{name}-{}", std::process::id());
    let path: PathBuf = program.parent().unwrap().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// Gives the guest's memory a file of which nothing is in memory, as that of a VM that is restored.
pub(crate) fn restored(memory: u64, bytes: u64) {
    let mut file = scratch("restored");
    for _ in 0..bytes >> 20 {
        file.write_all(&vec![0; 1 << 20]).unwrap();
    }
    file.sync_all().unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    let (at, fd) = (memory as *mut c_void, file.as_raw_fd());
    // SAFETY: the mapping takes the place of one that is ours, and as long.
    unsafe {
        assert_eq!(libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED), 0);
        assert_ne!(libc::mmap(at, bytes as usize, protection, flags, fd, 0), libc::MAP_FAILED);
        // Each page is read by itself.
        assert_eq!(libc::madvise(at, bytes as usize, libc::MADV_RANDOM), 0);
    }
}

/// How long this thread ran, and waited for a processor.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let times = text.split_ascii_whitespace().take(2);
    Duration::from_nanos(times.map(|time| time.parse::<u64>().unwrap()).sum())
}

/// Writes to a file at each exit, and waits until it is on its device; the vCPU is run again after that.
pub(crate) struct Journal {
    file: File,
    left: u64,
    /// How long its thread slept for it.
    pub(crate) slept: Duration,
}

impl Journal {
    pub(crate) fn of(exits: u64) -> Self {
        Self { file: scratch("journal"), left: exits, slept: Duration::ZERO }
    }

    /// Whether the vCPU is to be run again.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let (begun, used) = (Instant::now(), used());
        self.file.write_all(&vec![1; 1 << 16]).unwrap();
        self.file.sync_all().unwrap();
        self.slept += begun.elapsed().saturating_sub(self::used().saturating_sub(used));
        true
    }
}

/// Memory that userfaultfd watches.
struct Missing {
    fd: c_int,
}

impl Missing {
    fn of(start: u64, length: u64) -> Self {
        const API: u64 = 0xC018_AA3F;
        const REGISTER: u64 = 0xC020_AA00;
        // SAFETY: takes a number.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) } as c_int;
        assert!(fd >= 0, "userfaultfd: {}", std::io::Error::last_os_error());
        // SAFETY: the pages are ours, and become absent; each structure is what the request is about.
        unsafe {
            let call = |request: u64, argument: *mut u64| {
                let result = libc::ioctl(fd, request as c_ulong, argument);
                assert_eq!(result, 0, "userfaultfd: {}", std::io::Error::last_os_error());
            };
            call(API, [0xAAu64, 0, 0].as_mut_ptr());
            libc::madvise(start as *mut c_void, length as usize, libc::MADV_DONTNEED);
            call(REGISTER, [start, length, 1, 0].as_mut_ptr());
        }
        Self { fd }
    }

    /// Waits for a fault, and gives the page a while later.
    fn serve(&self, page: &[u8], late: Duration) {
        const COPY: u64 = 0xC028_AA03;
        let mut message = [0u64; 4];
        // SAFETY: the message is as long as the kernel's; the page is copied from ours, which outlives the call.
        unsafe {
            libc::read(self.fd, message.as_mut_ptr().cast(), size_of_val(&message));
            thread::sleep(late);
            let at = message[2] & !(PAGE - 1);
            let mut copy = [at, page.as_ptr() as u64, PAGE, 0, 0];
            libc::ioctl(self.fd, COPY as c_ulong, copy.as_mut_ptr());
        }
    }
}

/// Gives the guest's first page by userfaultfd, `late` milliseconds after it is wanted.
pub(crate) fn late_page(memory: u64, late: u64) {
    let missing = Missing::of(memory, PAGE);
    thread::spawn(move || {
        let mut page = vec![0; PAGE as usize];
        page[..LEAVES.len()].copy_from_slice(&LEAVES);
        missing.serve(&page, Duration::from_millis(late));
    });
}

/// Gives each page that the guest reads by userfaultfd, one after the other.
pub(crate) fn late_pages(memory: u64, pages: u64) {
    let missing = Missing::of(memory + PAGES, pages * PAGE);
    thread::spawn(move || {
        let page = vec![0; PAGE as usize];
        for _ in 0..pages {
            missing.serve(&page, Duration::from_millis(1));
        }
    });
}
