//! The system calls that matter in a VM's life: their numbers on each architecture, and which of each are looked at.

use libc::c_long;

/// A system call that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    Ioctl,
    /// Path, flags. Where there is no such call, 32-bit programs have it alone.
    Open,
    /// Directory, path, flags.
    OpenAt,
    /// Directory, path, a structure.
    OpenAt2,
    Close,
    CloseRange,
    /// `dup`, `dup2`, `dup3`, and `fcntl` that does the same.
    Dup,
    DupTo,
    Fcntl,
    /// Address, length, protection, flags, descriptor.
    Map,
    Unmap,
    Advise,
    Remap,
    /// A time in the first argument.
    Sleep,
    /// A time in the third.
    ClockSleep,
    /// A connection is taken.
    Accept,
    /// The program follows others itself, or is to be followed.
    Ptrace,
}

/// Which calls of a number are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Always,
    /// KVM's, but `KVM_RUN`: a vCPU that runs would stop at each.
    Kvm,
    /// A VMM opens `/dev/kvm` for writing; libraries are opened for reading. The argument with the flags.
    Writes(u8),
    /// At least [`LONG`], in this argument.
    Long(u8),
    /// A mapping that is shared, as that of a vCPU's `kvm_run` is, or long; of a file, longer than a library.
    LongOrShared,
    /// What is unmapped is long, or as long as a vCPU's `kvm_run`.
    LongOrRun,
    /// `fcntl` that makes a new descriptor.
    Duplicates,
}

/// What is mapped and is no shorter may be a guest's memory, in bytes. What an allocator maps is, mostly.
pub(crate) const LONG: u64 = 1 << 20;
/// A private mapping of a file that is shorter is a library's.
pub(crate) const LONG_FILE: u64 = 16 << 20;
/// The type of KVM's ioctls, and the number that runs a vCPU.
pub(crate) const KVM_TYPE: u64 = 0xAE;
pub(crate) const KVM_RUN: u64 = 0xAE80;
/// Bytes of a vCPU's mapping: `kvm_run`, the PIO page and the coalesced ring on x86, one page less on arm64.
pub(crate) const RUN_AREA: u64 = if cfg!(target_arch = "x86_64") { 3 << 12 } else { 2 << 12 };

/// The calls of one architecture.
pub(crate) struct Architecture {
    /// `AUDIT_ARCH_...` of linux/audit.h.
    pub(crate) audit: u32,
    pub(crate) calls: &'static [(u32, SystemCall, Test)],
}

/// A call's number where this program runs.
const fn native(number: c_long) -> u32 {
    number as u32
}

#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURES: [Architecture; 2] = [
    Architecture { audit: 0xC000_003E, calls: NATIVE },
    Architecture { audit: 0x4000_0003, calls: &I386 },
];
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURES: [Architecture; 1] =
    [Architecture { audit: 0xC000_00B7, calls: NATIVE }];

const NATIVE: &[(u32, SystemCall, Test)] = &[
    (native(libc::SYS_ioctl), SystemCall::Ioctl, Test::Kvm),
    #[cfg(target_arch = "x86_64")]
    (native(libc::SYS_open), SystemCall::Open, Test::Writes(1)),
    (native(libc::SYS_openat), SystemCall::OpenAt, Test::Writes(2)),
    (native(libc::SYS_openat2), SystemCall::OpenAt2, Test::Always),
    (native(libc::SYS_close), SystemCall::Close, Test::Always),
    (native(libc::SYS_close_range), SystemCall::CloseRange, Test::Always),
    (native(libc::SYS_dup), SystemCall::Dup, Test::Always),
    #[cfg(target_arch = "x86_64")]
    (native(libc::SYS_dup2), SystemCall::DupTo, Test::Always),
    (native(libc::SYS_dup3), SystemCall::DupTo, Test::Always),
    (native(libc::SYS_fcntl), SystemCall::Fcntl, Test::Duplicates),
    (native(libc::SYS_mmap), SystemCall::Map, Test::LongOrShared),
    (native(libc::SYS_munmap), SystemCall::Unmap, Test::LongOrRun),
    (native(libc::SYS_madvise), SystemCall::Advise, Test::Long(1)),
    (native(libc::SYS_mremap), SystemCall::Remap, Test::Long(1)),
    (native(libc::SYS_nanosleep), SystemCall::Sleep, Test::Always),
    (native(libc::SYS_clock_nanosleep), SystemCall::ClockSleep, Test::Always),
    (native(libc::SYS_accept), SystemCall::Accept, Test::Always),
    (native(libc::SYS_accept4), SystemCall::Accept, Test::Always),
    (native(libc::SYS_mlock), SystemCall::Advise, Test::Long(1)),
    (native(libc::SYS_mlock2), SystemCall::Advise, Test::Long(1)),
    (native(libc::SYS_ptrace), SystemCall::Ptrace, Test::Always),
];

/// Of 32-bit programs (`arch/x86/entry/syscalls/syscall_32.tbl`).
#[cfg(target_arch = "x86_64")]
const I386: [(u32, SystemCall, Test); 20] = [
    (54, SystemCall::Ioctl, Test::Kvm),
    (5, SystemCall::Open, Test::Writes(1)),
    (295, SystemCall::OpenAt, Test::Writes(2)),
    (437, SystemCall::OpenAt2, Test::Always),
    (6, SystemCall::Close, Test::Always),
    (436, SystemCall::CloseRange, Test::Always),
    (41, SystemCall::Dup, Test::Always),
    (63, SystemCall::DupTo, Test::Always),
    (330, SystemCall::DupTo, Test::Always),
    (55, SystemCall::Fcntl, Test::Duplicates),
    (221, SystemCall::Fcntl, Test::Duplicates),
    (192, SystemCall::Map, Test::LongOrShared),
    (91, SystemCall::Unmap, Test::LongOrRun),
    (219, SystemCall::Advise, Test::Long(1)),
    (163, SystemCall::Remap, Test::Long(1)),
    (162, SystemCall::Sleep, Test::Always),
    (267, SystemCall::ClockSleep, Test::Always),
    (407, SystemCall::ClockSleep, Test::Always),
    (364, SystemCall::Accept, Test::Always),
    (26, SystemCall::Ptrace, Test::Always),
];

/// The call that is looked at, if it is one: what the filter lets stop, for when there is none.
pub(crate) fn wanted(arch: u32, number: u64, arguments: &[u64; 6]) -> Option<SystemCall> {
    let architecture = ARCHITECTURES.iter().find(|one| one.audit == arch)?;
    let (_, call, test) =
        architecture.calls.iter().find(|(wanted, ..)| u64::from(*wanted) == number)?;
    let is_long = |argument: u64| argument >= LONG;
    let low = |argument: usize| arguments[argument] & 0xFFFF_FFFF;
    let holds = match test {
        Test::Always => true,
        Test::Kvm => low(1) != KVM_RUN && low(1) >> 8 & 0xFF == KVM_TYPE,
        Test::Writes(flags) => low(usize::from(*flags)) & libc::O_ACCMODE as u64 != 0,
        Test::Long(argument) => is_long(arguments[usize::from(*argument)]),
        Test::LongOrShared => {
            let has = |flag: i32| low(3) & flag as u64 != 0;
            let least = if has(libc::MAP_ANONYMOUS) { LONG } else { LONG_FILE };
            has(libc::MAP_SHARED) || arguments[1] >= least
        }
        Test::LongOrRun => is_long(arguments[1]) || arguments[1] == RUN_AREA,
        Test::Duplicates => {
            [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].iter().any(|one| *one as u64 == low(1))
        }
    };
    holds.then_some(*call)
}

/// Whether a call runs a vCPU.
pub(crate) fn runs_vcpu(arch: u32, number: u64, arguments: &[u64; 6]) -> bool {
    ARCHITECTURES.iter().filter(|one| one.audit == arch).any(|one| {
        let mut calls = one.calls.iter();
        calls.any(|(nr, call, _)| *call == SystemCall::Ioctl && u64::from(*nr) == number)
    }) && arguments[1] & 0xFFFF_FFFF == KVM_RUN
}
