//! Workarounds in firmware against speculation.

/// A workaround in firmware, for a CPU that speculates too far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workaround {
    /// `SMCCC_ARCH_WORKAROUND_1`: branch predictors are made to forget (CVE-2017-5715).
    BranchTarget,
    /// `SMCCC_ARCH_WORKAROUND_2`: loads wait for older stores while it is on (CVE-2018-3639).
    StoreBypass {
        /// Whether it is to be on for this vCPU from now on.
        on: bool,
    },
    /// `SMCCC_ARCH_WORKAROUND_3`: branch history is made to be forgotten (CVE-2022-23960).
    BranchHistory,
}

/// What the CPUs need of a workaround.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// The embedder does not know, or there is none: the guest helps itself, or says that it is vulnerable.
    #[default]
    Unknown,
    /// These CPUs do without: the guest need not call.
    NotRequired,
    /// The guest calls, and the embedder does it.
    Required,
}

/// What all CPUs need that the guest may run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workarounds {
    /// [`Workaround::BranchTarget`].
    pub branch_target: Need,
    /// [`Workaround::StoreBypass`].
    pub store_bypass: Need,
    /// [`Workaround::BranchHistory`].
    pub branch_history: Need,
}
