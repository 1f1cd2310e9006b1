//! The memory of the guest and of the process: mapped, touched, given to KVM.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use kvm_bindings::{KVM_MEM_LOG_DIRTY_PAGES, kvm_userspace_memory_region};
use libc::{c_int, c_void};

use super::{Plan, guest, ioctl};

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

/// Touches as much memory of its own as is said, and leaves it to the end of the process.
pub(crate) fn touch_new(bytes: u64) {
    if bytes > 0 {
        touch(map(bytes, 0), bytes);
    }
}

/// How long this thread has had a processor.
fn ran() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sets a memslot.
fn set(
    vm: c_int,
    slot: u32,
    guest_phys_addr: u64,
    (userspace_addr, memory_size): (u64, u64),
    flags: u32,
) {
    let region =
        kvm_userspace_memory_region { slot, flags, guest_phys_addr, memory_size, userspace_addr };
    ioctl(vm, "KVM_SET_USER_MEMORY_REGION", 0x4020_AE46, &raw const region as u64);
}

/// Gives the VM its memory, and loads and touches what is planned; says where the guest's memory is, and what is to be
/// unmapped when the guest is over.
pub(crate) fn give(plan: &Plan, vm: c_int) -> (u64, Option<u64>) {
    let bytes = plan.of("memory") << 20;
    let memory = map(bytes, 0);
    if plan.is("visit") {
        // SAFETY: the mapping is ours, and as long; its pages are small, so that there are many.
        unsafe { libc::madvise(memory as *mut c_void, bytes as usize, libc::MADV_NOHUGEPAGE) };
    }
    if plan.is("restore") {
        guest::restored(memory, bytes);
    }
    set(vm, 0, 0, (memory, bytes), 0);
    if plan.is("slot") {
        let bytes = plan.of("slot") << 30;
        set(vm, 2, 1 << 36, (map(bytes, 0), bytes), 0);
    }
    if plan.is("dirty") {
        let bytes = plan.of("dirty") << 30;
        let range = (map(bytes, 0), bytes);
        for flags in [0, KVM_MEM_LOG_DIRTY_PAGES, 0] {
            set(vm, 3, 1 << 37, range, flags);
        }
    }
    if plan.is("image") {
        load(plan.of("image"));
        let until = ran() + Duration::from_millis(plan.of("compute"));
        while ran() < until {
            std::hint::spin_loop();
        }
    }
    if plan.is("populate") {
        map(plan.of("populate") << 20, libc::MAP_POPULATE);
    }
    let touched = plan.is("unmap").then(|| {
        let bytes = plan.of("unmap") << 20;
        let touched = map(bytes, 0);
        touch(touched, bytes);
        set(vm, 1, 1 << 32, (touched, bytes), 0);
        touched
    });
    touch_new(plan.of("leave") << 20);
    (memory, touched)
}

/// Maps so many pages, so that each is a mapping of its own.
pub(crate) fn many_mappings(count: u64) {
    if count == 0 {
        return;
    }
    let at = map(count * 4096, 0);
    for page in (0..count).step_by(2) {
        // SAFETY: the mapping is ours, and nobody writes to it.
        let result =
            unsafe { libc::mprotect((at + page * 4096) as *mut c_void, 4096, libc::PROT_READ) };
        assert_eq!(result, 0, "mprotect: {}", std::io::Error::last_os_error());
    }
}

/// Reads as much, in pieces of a page.
fn load(mebibytes: u64) {
    let mut source = File::open("/dev/urandom").unwrap();
    let mut page = [0; 4096];
    for _ in 0..mebibytes << 8 {
        source.read_exact(&mut page).unwrap();
    }
}
