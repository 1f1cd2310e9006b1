//! Power State Coordination Interface, 1.1 (Arm DEN 0022): cores turned on and off, and the end of the system.
//!
//! A core is *off*, *on*, or *pending*: a vCPU has turned it on, and it does not run yet. All vCPUs may call at once.
//! Of several vCPUs that turn on the same core, one succeeds. To guests a pending core is on, as KVM's are: its
//! selftests and kvm-unit-tests do not expect `ON_PENDING`, which DEN 0022 allows. The state of a core is one word, and changes so:
//!
//! - off -> pending: `CPU_ON`, by compare-exchange, in [`Psci::call`];
//! - pending -> on: [`Psci::started`], by the thread that runs the core, before the core's first instruction;
//! - pending -> off: [`Psci::refused`], if the core could not be started;
//! - on -> off: [`Psci::stopped`], by the thread that ran the core, when the core will not execute another instruction.
//!   Only then does `AFFINITY_INFO` say that the core is off. A kernel that unplugs a CPU waits for this.
//!
//! The release that makes a core off is acquired by the `CPU_ON` that turns it on again. So the thread that starts the
//! core sees all that its last run wrote.

mod saved;

use arm_psci::{
    AffinityInfo, ArchitecturalResetType, EntryPoint, Error, ErrorCode, Function, FunctionId,
    MigrateInfoType, Mpidr, PsciFeature, ResetType, Version,
};
use mayfly_platform::sync::{AtomicU32, Ordering};

use crate::workaround::Workaround;
pub use saved::STATE;

const ON: u32 = AffinityInfo::On as u32;
const OFF: u32 = AffinityInfo::Off as u32;
const PENDING: u32 = AffinityInfo::OnPending as u32;

const SUCCESS: u64 = 0;

/// What is zero in a power state of the original format (DEN 0022, 5.4.2), which `PSCI_FEATURES` says that `CPU_SUSPEND`
/// takes.
const POWER_STATE_RESERVED: u32 = 0xfcfe_0000;

/// The affinity fields of `MPIDR_EL1`.
const AFFINITY: u64 = 0xff_00ff_ffff;

/// A core, and whether it is on.
#[derive(Debug)]
pub struct Core {
    mpidr: u64,
    state: AtomicU32,
}

impl Core {
    /// A core that is on: the one that the system starts with. Of `mpidr`, the affinity fields count.
    pub fn on(mpidr: u64) -> Self {
        Self { mpidr: mpidr & AFFINITY, state: AtomicU32::new(ON) }
    }

    /// A core that is off.
    pub fn off(mpidr: u64) -> Self {
        Self { mpidr: mpidr & AFFINITY, state: AtomicU32::new(OFF) }
    }
}

impl Clone for Core {
    /// A core that is as this one is now.
    fn clone(&self) -> Self {
        // Acquire: of the thread that ran the core, when it was stopped.
        Self { mpidr: self.mpidr, state: AtomicU32::new(self.state.load(Ordering::Acquire)) }
    }
}

/// What the embedder is to do for the core that has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This goes to x0.
    Return(u64),
    /// `CPU_ON`: start `target`, which is pending, at `entry`, with `context` in x0, the MMU and the caches off.
    /// [`Psci::started`] or [`Psci::refused`] says how that went; x0 of the caller is 0, or what `refused` gives.
    Start {
        /// The core, by its place among the cores.
        target: usize,
        /// Where it begins, a physical address of the guest's that is not checked yet.
        entry: u64,
        /// What it finds in x0.
        context: u64,
    },
    /// `CPU_OFF`: stop the caller for good, then say so with [`Psci::stopped`].
    Stop,
    /// `CPU_SUSPEND`: wait as for a WFI, then go on with 0 in x0. A caller that asks for a state in which registers
    /// are lost is given one in which they are kept.
    Wait,
    /// `SYSTEM_OFF`: the system ends.
    SystemOff,
    /// `SYSTEM_RESET`, and `SYSTEM_RESET2` as a warm reset: the system begins anew.
    SystemReset,
    /// Do this, then go on with 0 in x0.
    Workaround(Workaround),
}

/// The cores of a system: an array, a vector or a box of them, in the order of their numbers.
#[derive(Debug)]
pub struct Psci<C> {
    cores: C,
}

impl<C: AsRef<[Core]>> Psci<C> {
    /// A system of these cores.
    pub const fn new(cores: C) -> Self {
        Self { cores }
    }

    /// Its cores: a clone of each, where none runs, is for a system that goes on as this one.
    pub const fn cores(&self) -> &C {
        &self.cores
    }

    /// Answers core `caller`, which had these values in x0 to x3. See [`smccc::call`](crate::smccc::call), which takes
    /// all that guests call for.
    pub fn call(&self, caller: usize, arguments: &[u64; 4]) -> Outcome {
        // What is not supported is so whatever the arguments are.
        let Some(function) =
            FunctionId::try_from(arguments[0] as u32).ok().filter(|id| supported(*id))
        else {
            return error(ErrorCode::NotSupported);
        };
        // Parsed below, a power state would be of the other format.
        if matches!(function, FunctionId::CpuSuspend32 | FunctionId::CpuSuspend64) {
            let is_state = arguments[1] as u32 & POWER_STATE_RESERVED == 0;
            return if is_state { Outcome::Wait } else { error(ErrorCode::InvalidParameters) };
        }
        match Function::try_from(arguments) {
            Ok(function) => self.answer(caller, function),
            Err(Error::UnrecognisedFunctionId(_)) => error(ErrorCode::NotSupported),
            Err(_) => error(ErrorCode::InvalidParameters),
        }
    }

    /// Core `target`, which was pending, runs now.
    pub fn started(&self, target: usize) {
        self.change(target, PENDING, ON);
    }

    /// Core `target`, which was pending, cannot run: it is off again. Gives what goes to x0 of the caller:
    /// `INTERNAL_FAILURE`, or for an address that the core cannot start at ([`Refusal::Address`]) `INVALID_ADDRESS`.
    pub fn refused(&self, target: usize, why: Refusal) -> u64 {
        self.change(target, PENDING, OFF);
        match why {
            Refusal::Address => ErrorCode::InvalidAddress.into(),
            Refusal::Resources => ErrorCode::InternalFailure.into(),
        }
    }

    /// Core `caller`, which was on, executes nothing any more.
    pub fn stopped(&self, caller: usize) {
        self.change(caller, ON, OFF);
    }

    /// Whether core `index` was turned on, and does not run yet. False for a core that there is not.
    pub fn is_pending(&self, index: usize) -> bool {
        let core = self.cores.as_ref().get(index);
        core.is_some_and(|core| core.state.load(Ordering::Acquire) == PENDING)
    }

    /// Whether core `index` is on. False for a core that there is not.
    pub fn is_on(&self, index: usize) -> bool {
        self.cores.as_ref().get(index).is_some_and(|core| core.state.load(Ordering::Acquire) == ON)
    }

    fn change(&self, index: usize, from: u32, to: u32) {
        if let Some(core) = self.cores.as_ref().get(index) {
            // Another state is a mistake of the embedder's, and leaves the core as it is.
            // Release, pairing with the acquires of who turns the core on, and who asks for its state. What came before
            // the state that this ends has been acquired by who turned the core on.
            let changed =
                core.state.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
            debug_assert_eq!(changed, Ok(from), "core {index}");
        }
    }

    fn answer(&self, caller: usize, function: Function) -> Outcome {
        match function {
            Function::Version => Outcome::Return(u32::from(Version { major: 1, minor: 1 }).into()),
            Function::CpuOff => {
                let there = caller < self.cores.as_ref().len();
                if there { Outcome::Stop } else { error(ErrorCode::Denied) }
            }
            Function::CpuOn { target_cpu, entry } => self.turn_on(target_cpu, entry),
            Function::AffinityInfo { mpidr, lowest_affinity_level } => {
                self.affinity_info(mpidr, lowest_affinity_level)
            }
            Function::MigrateInfoType => {
                Outcome::Return(MigrateInfoType::MigrationNotRequired as u64)
            }
            Function::SystemOff => Outcome::SystemOff,
            Function::SystemReset => Outcome::SystemReset,
            Function::SystemReset2 { reset_type, .. } => match reset_type {
                ResetType::Architectural(ArchitecturalResetType::SystemWarmReset) => {
                    Outcome::SystemReset
                }
                ResetType::VendorSpecific(_) => error(ErrorCode::InvalidParameters),
            },
            Function::Features { psci_func_id } => match psci_func_id {
                PsciFeature::SmcccVersion => Outcome::Return(SUCCESS),
                // No flags: of CPU_SUSPEND, the original format of the power state.
                PsciFeature::PsciFunction(function) if supported(function) => {
                    Outcome::Return(SUCCESS)
                }
                PsciFeature::PsciFunction(_) => error(ErrorCode::NotSupported),
            },
            _ => error(ErrorCode::NotSupported),
        }
    }

    fn turn_on(&self, target: Mpidr, entry: EntryPoint) -> Outcome {
        let wanted = u64::from(target);
        let cores = self.cores.as_ref();
        let Some(target) = cores.iter().position(|core| core.mpidr == wanted) else {
            return error(ErrorCode::InvalidParameters);
        };
        match cores[target].state.compare_exchange(
            OFF,
            PENDING,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => Outcome::Start {
                target,
                entry: entry.entry_point_address(),
                context: entry.context_id(),
            },
            Err(_) => error(ErrorCode::AlreadyOn),
        }
    }

    /// What the cores are whose affinity is that of `mpidr` from `level` on upwards: on, if one is.
    fn affinity_info(&self, mpidr: Mpidr, level: u32) -> Outcome {
        let same = match level {
            0 => AFFINITY,
            1 => AFFINITY & !0xff,
            2 => AFFINITY & !0xffff,
            _ => AFFINITY & !0xff_ffff,
        };
        let mut found = None;
        for core in self.cores.as_ref() {
            if (core.mpidr ^ u64::from(mpidr)) & same == 0 {
                let state = core.state.load(Ordering::Acquire);
                found = Some(if state == OFF { found.unwrap_or(OFF) } else { ON });
            }
        }
        found.map_or(error(ErrorCode::InvalidParameters), |state| Outcome::Return(state.into()))
    }
}

/// Why a core could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The guest has no memory where it was to begin.
    Address,
    /// There was nothing to run it with.
    Resources,
}

fn error(code: ErrorCode) -> Outcome {
    Outcome::Return(code.into())
}

/// The functions that are answered with anything but `NOT_SUPPORTED`.
const fn supported(function: FunctionId) -> bool {
    matches!(
        function,
        FunctionId::PsciVersion
            | FunctionId::CpuSuspend32
            | FunctionId::CpuSuspend64
            | FunctionId::CpuOff
            | FunctionId::CpuOn32
            | FunctionId::CpuOn64
            | FunctionId::AffinityInfo32
            | FunctionId::AffinityInfo64
            | FunctionId::MigrateInfoType
            | FunctionId::SystemOff
            | FunctionId::SystemReset
            | FunctionId::SystemReset232
            | FunctionId::SystemReset264
            | FunctionId::PsciFeatures
    )
}
