//! Calls of a guest to its firmware, by HVC or SMC: the SMC Calling Convention (Arm DEN 0028, 1.1), with what PSCI
//! answers to.
//!
//! A function that is not known is answered [`NOT_SUPPORTED`], whatever its arguments. The answer is in x0; the embedder
//! leaves all other registers of the guest as they are, which every version of the convention allows.
//!
//! What a CPU's firmware is asked to do against speculation is for the embedder to say ([`Workarounds`]), and to do: a
//! guest that is told *required* calls for it at each switch of contexts.

pub use crate::workaround::{Need, Workaround, Workarounds};

use crate::psci::{Outcome, Psci};

/// "The call is not supported", as x0 has it.
pub const NOT_SUPPORTED: u64 = (-1_i64).cast_unsigned();
const SUCCESS: u64 = 0;
const NOT_REQUIRED_FROM_FEATURES: u64 = 1;
const WORKAROUND_2_NOT_REQUIRED: u64 = (-2_i64).cast_unsigned();

/// The version that is answered: 1.1, the first with a query for workarounds.
pub const VERSION: u64 = 0x1_0001;

const SMCCC_VERSION: u32 = 0x8000_0000;
const SMCCC_ARCH_FEATURES: u32 = 0x8000_0001;
const SMCCC_ARCH_WORKAROUND_1: u32 = 0x8000_8000;
const SMCCC_ARCH_WORKAROUND_2: u32 = 0x8000_7fff;
const SMCCC_ARCH_WORKAROUND_3: u32 = 0x8000_3fff;

/// What `SMCCC_ARCH_FEATURES` says of each function.
fn features(function: u32, workarounds: Workarounds) -> u64 {
    let (need, not_required) = match function {
        SMCCC_VERSION | SMCCC_ARCH_FEATURES => return SUCCESS,
        SMCCC_ARCH_WORKAROUND_1 => (workarounds.branch_target, NOT_REQUIRED_FROM_FEATURES),
        SMCCC_ARCH_WORKAROUND_2 => (workarounds.store_bypass, WORKAROUND_2_NOT_REQUIRED),
        SMCCC_ARCH_WORKAROUND_3 => (workarounds.branch_history, NOT_REQUIRED_FROM_FEATURES),
        _ => return NOT_SUPPORTED,
    };
    match need {
        Need::Unknown => NOT_SUPPORTED,
        Need::NotRequired => not_required,
        Need::Required => SUCCESS,
    }
}

/// Answers a call of core `caller`, which had `arguments` in x0 to x3. The immediate of the HVC or SMC was zero; another
/// one is no call by this convention.
///
/// ```
/// use mayfly_devices::psci::{Core, Outcome, Psci};
/// use mayfly_devices::smccc::{self, Workarounds};
///
/// let psci = Psci::new([Core::on(0), Core::off(1)]);
/// let call = |arguments| smccc::call(&psci, Workarounds::default(), 0, &arguments);
/// assert_eq!(call([0x8400_0000, 0, 0, 0]), Outcome::Return(0x1_0001), "PSCI_VERSION");
/// assert_eq!(call([0x8000_0000, 0, 0, 0]), Outcome::Return(0x1_0001), "SMCCC_VERSION");
/// assert_eq!(call([0xc600_0000, 0, 0, 0]), Outcome::Return(smccc::NOT_SUPPORTED));
/// ```
pub fn call<C: AsRef<[crate::psci::Core]>>(
    psci: &Psci<C>,
    workarounds: Workarounds,
    caller: usize,
    arguments: &[u64; 4],
) -> Outcome {
    let required = |need, workaround| match need {
        Need::Required => Outcome::Workaround(workaround),
        Need::NotRequired => Outcome::Return(SUCCESS),
        Need::Unknown => Outcome::Return(NOT_SUPPORTED),
    };
    match arguments[0] as u32 {
        SMCCC_VERSION => Outcome::Return(VERSION),
        SMCCC_ARCH_FEATURES => Outcome::Return(features(arguments[1] as u32, workarounds)),
        SMCCC_ARCH_WORKAROUND_1 => required(workarounds.branch_target, Workaround::BranchTarget),
        SMCCC_ARCH_WORKAROUND_2 => {
            let on = arguments[1] as u32 != 0;
            required(workarounds.store_bypass, Workaround::StoreBypass { on })
        }
        SMCCC_ARCH_WORKAROUND_3 => required(workarounds.branch_history, Workaround::BranchHistory),
        _ => psci.call(caller, arguments),
    }
}
