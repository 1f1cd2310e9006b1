//! The VMs of one variant, one after the other, and what came of them.

use mayfly_record::Backend;

/// What was measured of VMs on the software machine (`M`), or on KVM (`K`).
pub(crate) enum Vms<M, K> {
    Machine(Vec<M>),
    Kvm(Vec<K>),
    /// There are none, and why.
    Skipped(String),
}

impl<M, K> Vms<M, K> {
    /// None so far. `why_not` says why KVM cannot run them, if it cannot.
    pub(crate) fn on(
        backend: Backend,
        why_not: impl FnOnce() -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<Self> {
        Ok(match backend {
            Backend::Machine => Self::Machine(Vec::new()),
            Backend::Kvm => why_not()?.map_or(Self::Kvm(Vec::new()), Self::Skipped),
            Backend::Metal => Self::Skipped("it does not run there".to_owned()),
        })
    }

    /// Runs one more, by the function for where they run.
    pub(crate) fn run(
        &mut self,
        machine: impl FnOnce() -> anyhow::Result<M>,
        kvm: impl FnOnce() -> anyhow::Result<K>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Machine(vms) => vms.push(machine()?),
            Self::Kvm(vms) => vms.push(kvm()?),
            Self::Skipped(_) => {}
        }
        Ok(())
    }
}
