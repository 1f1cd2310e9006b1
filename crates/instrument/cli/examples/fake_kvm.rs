//! A KVM that is not there, for tests: a library that is loaded before the C library's (`LD_PRELOAD`), and answers the
//! calls of a VM's life itself. Each call takes as long as the laws say that were planted, with noise as hosts have it.
//!
//! `MAYFLY_PLANTED` names the file with the laws ([`Laws`]). A program that takes no time for its VMs cannot be told from
//! one that does, so the laws hold for one call alone: the first after the program has slept for as long as
//! `mayfly laws` leaves a stage alone. That sleep takes no time here, since there is nothing that could go on meanwhile.
//!
//! Calls that Rust makes without the C library are not answered: an eventfd is registered with a file that knows of
//! nothing, and that fails as in a kernel without such calls.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::fs;
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{clockid_t, mode_t, timespec};
use mayfly_record::{Chance, here};

#[path = "fake_kvm/laws.rs"]
mod laws;

use laws::{Laws, Stage};

/// As long as `mayfly laws` leaves a stage alone.
const SETTLED: timespec = timespec { tv_sec: 0, tv_nsec: 40_000_000 };

/// The numbers of calls, without direction and size of what they are given: `KVMIO`, and a number.
const fn kvm(number: u32) -> u32 {
    (0xae << 8) | number
}
const GET_API_VERSION: u32 = kvm(0x00);
const CREATE_VM: u32 = kvm(0x01);
const CHECK_EXTENSION: u32 = kvm(0x03);
const GET_VCPU_MMAP_SIZE: u32 = kvm(0x04);
const GET_SUPPORTED_CPUID: u32 = kvm(0x05);
const CREATE_VCPU: u32 = kvm(0x41);
const SET_USER_MEMORY_REGION: u32 = kvm(0x46);

const CAP_NR_MEMSLOTS: c_ulong = 10;
const CAP_MAX_VCPUS: c_ulong = 66;
const RUN_SIZE: c_int = 12_288;
const PAGE: u64 = 4096;

/// What a file of this process is.
enum File {
    Kvm,
    /// How many vCPUs it has, and how many pages each slot.
    Vm {
        vcpus: u64,
        slots: BTreeMap<u32, u64>,
    },
    Vcpu,
}

#[derive(Default)]
struct State {
    files: BTreeMap<c_int, File>,
    /// Mappings that nobody touches: those of the process when KVM was opened, and beside them when it last slept.
    own_mappings: u64,
    mappings: u64,
    /// The next call is the one that takes time.
    is_armed: bool,
    chance: Option<Chance>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Looks at the state, or changes it. Nothing in here may open or close a file: that would come here again.
fn with<T>(what: impl FnOnce(&mut State) -> T) -> T {
    what(STATE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn planted() -> &'static Laws {
    static LAWS: OnceLock<Laws> = OnceLock::new();
    LAWS.get_or_init(|| {
        let path = std::env::var_os("MAYFLY_PLANTED");
        let text = path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        Laws::parse(&text)
    })
}

/// Mappings that are as those which `mayfly laws` makes: of no file, and not to be written.
fn untouched_mappings() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_one = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        matches!(fields.next(), Some("---p" | "r--p")) && fields.count() == 3
    };
    maps.lines().filter(is_one).count() as u64
}

impl State {
    fn vms(&self) -> u64 {
        self.files.values().filter(|file| matches!(file, File::Vm { .. })).count() as u64
    }

    /// What there is beside the VM `fd`, and in it; nothing in it, where there is none yet.
    fn stage(&self, fd: Option<c_int>) -> Stage {
        let mappings = self.mappings.saturating_sub(self.own_mappings);
        let stage = Stage { mappings, vms: self.vms(), ..Stage::default() };
        match fd.and_then(|fd| self.files.get(&fd)) {
            Some(File::Vm { vcpus, slots }) => Stage {
                vms: stage.vms - 1,
                vcpus: *vcpus,
                slots: slots.len() as u64,
                slot_pages: slots.values().copied().max().unwrap_or(0),
                ..stage
            },
            _ => stage,
        }
    }

    /// How long the call is to take, if it is the one that takes time.
    fn time(&mut self, call: &str, stage: Stage) -> u64 {
        if !std::mem::take(&mut self.is_armed) {
            return 0;
        }
        let laws = planted();
        let chance = self.chance.get_or_insert_with(|| Chance::new(laws.seed));
        laws.time(call, stage, chance)
    }
}

/// Runs until the call has run for so long since it `began`: what this library does itself is a part of that. Others that
/// have the processor meanwhile make it no shorter.
fn take(began: u64, nanoseconds: u64) {
    while here::cpu() < began + nanoseconds {}
}

fn failed(errno: c_int) -> c_int {
    // SAFETY: the calling thread's own errno is always there.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A file that nothing is in, of which so much can be mapped.
fn new_file(name: &CStr) -> c_int {
    // SAFETY: the name ends with a NUL, and a new file is nobody's.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd >= 0 {
            libc::ftruncate(fd, RUN_SIZE.into());
        }
        fd
    }
}

fn create_vm(began: u64) -> c_int {
    let fd = new_file(c"fake-vm");
    let time = with(|state| {
        let stage = state.stage(None);
        state.files.insert(fd, File::Vm { vcpus: 0, slots: BTreeMap::new() });
        state.time("create-vm", stage)
    });
    take(began, time);
    fd
}

fn create_vcpu(vm: c_int, began: u64) -> c_int {
    let fd = new_file(c"fake-vcpu");
    let time = with(|state| {
        let stage = state.stage(Some(vm));
        if let Some(File::Vm { vcpus, .. }) = state.files.get_mut(&vm) {
            *vcpus += 1;
        }
        state.files.insert(fd, File::Vcpu);
        state.time("create-vcpu", stage)
    });
    take(began, time);
    fd
}

/// A slot of so many pages comes, goes if they are none, or has other flags.
fn set_slot(vm: c_int, slot: u32, pages: u64, began: u64) -> c_int {
    let time = with(|state| {
        let stage = state.stage(Some(vm));
        let Some(File::Vm { slots, .. }) = state.files.get_mut(&vm) else { return None };
        let there = slots.remove(&slot);
        let call = match (there, pages) {
            (None, 0) => return None,
            (Some(_), 0) => "delete-slot",
            (None, _) => "add-slot",
            (Some(_), _) => "start-dirty-log",
        };
        let others = stage.slots - u64::from(there.is_some());
        let stage = Stage { slots: others, slot_pages: pages.max(there.unwrap_or(0)), ..stage };
        if pages > 0 {
            slots.insert(slot, pages);
        }
        Some(state.time(call, stage))
    });
    let Some(time) = time else { return failed(libc::EINVAL) };
    take(began, time);
    0
}

/// What a descriptor is, where that alone matters.
enum Is {
    Kvm,
    Vm,
    Vcpu,
}

/// `ioctl`, which is declared to take any number of arguments: a kernel takes one more than the request.
///
/// # Safety
/// As the C library's. What KVM is given is what its calls take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let began = here::cpu();
    let kind = with(|state| match state.files.get(&fd)? {
        File::Kvm => Some(Is::Kvm),
        File::Vm { .. } => Some(Is::Vm),
        File::Vcpu => Some(Is::Vcpu),
    });
    let Some(kind) = kind else {
        // SAFETY: the caller's call, as it is.
        return unsafe { libc::syscall(libc::SYS_ioctl, c_long::from(fd), request, argument) }
            as c_int;
    };
    match (kind, request as u32 & 0xffff) {
        (Is::Kvm, GET_API_VERSION) => 12,
        (Is::Kvm | Is::Vm, CHECK_EXTENSION) => match argument as c_ulong {
            CAP_NR_MEMSLOTS => 32_764,
            CAP_MAX_VCPUS => 1024,
            _ => 1,
        },
        (Is::Kvm, GET_VCPU_MMAP_SIZE) => RUN_SIZE,
        (Is::Kvm, GET_SUPPORTED_CPUID) => {
            // SAFETY: the caller gives a `kvm_cpuid2`, which begins with the number of its entries.
            unsafe { *argument.cast::<c_uint>() = 0 };
            0
        }
        (Is::Kvm, CREATE_VM) => create_vm(began),
        (Is::Vm, CREATE_VCPU) => create_vcpu(fd, began),
        (Is::Vm, SET_USER_MEMORY_REGION) => {
            // SAFETY: the caller gives a `kvm_userspace_memory_region`: two numbers of 32 bits, the slot first, and three
            // of 64 bits, of which the second is the size.
            let (slot, size) = unsafe { (*argument.cast::<u32>(), *argument.cast::<u64>().add(2)) };
            set_slot(fd, slot, size / PAGE, began)
        }
        _ => failed(libc::ENOTTY),
    }
}

/// `open`, where `/dev/kvm` is another file.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's path, which ends with a NUL.
    if unsafe { CStr::from_ptr(path) } != c"/dev/kvm" {
        // SAFETY: the caller's call, as it is.
        return unsafe { libc::openat(libc::AT_FDCWD, path, flags, mode) };
    }
    // Reads a file, which is opened and closed: not to be done where the state is looked at.
    planted();
    let (fd, own) = (new_file(c"fake-kvm"), untouched_mappings());
    with(|state| {
        state.files.insert(fd, File::Kvm);
        state.own_mappings = own;
    });
    fd
}

/// `close`, which of a VM takes time.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let began = here::cpu();
    let time = with(|state| {
        let time = match state.files.get(&fd) {
            Some(File::Vm { .. }) => {
                let stage = state.stage(Some(fd));
                state.time("close-vm", stage)
            }
            _ => 0,
        };
        state.files.remove(&fd);
        time
    });
    // SAFETY: the caller's call, as it is.
    let closed = unsafe { libc::syscall(libc::SYS_close, c_long::from(fd)) as c_int };
    take(began, time);
    closed
}

/// A sleep of as long as a stage is left alone: it takes no time, and the next call does.
fn settles(time: &timespec) -> bool {
    let is_it = (time.tv_sec, time.tv_nsec) == (SETTLED.tv_sec, SETTLED.tv_nsec);
    if is_it {
        let mappings = untouched_mappings();
        with(|state| {
            state.mappings = mappings;
            state.is_armed = true;
        });
    }
    is_it
}

/// `nanosleep`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's time, if there is one.
    if unsafe { time.as_ref() }.is_some_and(settles) {
        return 0;
    }
    // SAFETY: the caller's call, as it is.
    unsafe { libc::syscall(libc::SYS_nanosleep, time, left) as c_int }
}

/// `clock_nanosleep`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's time, if there is one.
    if flags == 0 && unsafe { time.as_ref() }.is_some_and(settles) {
        return 0;
    }
    // SAFETY: the caller's call, as it is; and the calling thread's own errno, which this call gives back.
    unsafe {
        let (clock, flags) = (c_long::from(clock), c_long::from(flags));
        match libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) {
            0 => 0,
            _ => *libc::__errno_location(),
        }
    }
}
