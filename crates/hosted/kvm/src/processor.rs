//! What a vCPU is told that it is.

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::Processor;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::Processor;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use kvm_ioctls::{Kvm, VcpuFd};

    use crate::Error;

    /// Nothing: what a vCPU is, it is told as it is initialised.
    #[derive(Clone, Debug)]
    pub(crate) struct Processor;

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on x86-64")]
    impl Processor {
        pub(crate) fn of_host(_kvm: &Kvm) -> Result<Self, Error> {
            Ok(Self)
        }

        pub(crate) fn tell(&self, _vcpu: &VcpuFd) -> Result<(), Error> {
            Ok(())
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::sync::Arc;

    use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
    use kvm_ioctls::{Kvm, VcpuFd};

    use crate::Error;

    /// All that the host's KVM supports, as VMMs tell their vCPUs.
    ///
    /// Since Linux v7.2 `KVM_SET_SREGS` refuses `EFER.LME` and `EFER.LMA` with EINVAL where CPUID has no long mode, and a
    /// vCPU that was told nothing has none.
    #[derive(Clone, Debug)]
    pub(crate) struct Processor(Arc<CpuId>);

    impl Processor {
        pub(crate) fn of_host(kvm: &Kvm) -> Result<Self, Error> {
            let cpuid = kvm
                .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
                .map_err(Error::ioctl("KVM_GET_SUPPORTED_CPUID"))?;
            Ok(Self(Arc::new(cpuid)))
        }

        /// Tells it to a vCPU that has not run.
        pub(crate) fn tell(&self, vcpu: &VcpuFd) -> Result<(), Error> {
            vcpu.set_cpuid2(&self.0).map_err(Error::ioctl("KVM_SET_CPUID2"))
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::Write;

        use super::*;
        use crate::{GuestMemory, Payload, Vm};

        /// The bit of leaf `0x8000_0001`, EDX, that says long mode.
        const LONG_MODE: u32 = 1 << 29;

        #[test]
        fn a_vcpu_that_is_put_in_long_mode_has_been_told_that_there_is_one() {
            let kvm = match crate::Kvm::open() {
                Ok(kvm) => kvm,
                Err(why) => {
                    return writeln!(std::io::stderr(), "a vCPU's CPUID is not asked: {why}")
                        .unwrap();
                }
            };
            let memory = GuestMemory::map(2 << 20).unwrap();
            Payload::install(&memory).unwrap();
            let vm = Vm::create(&kvm).unwrap();
            let mut vcpu = vm.create_vcpu(0).unwrap();
            let says = |vcpu: &crate::Vcpu| {
                let cpuid = vcpu.fd().get_cpuid2(KVM_MAX_CPUID_ENTRIES).unwrap();
                let mut entries = cpuid.as_slice().iter();
                entries.any(|leaf| leaf.function == 0x8000_0001 && leaf.edx & LONG_MODE != 0)
            };
            assert!(!says(&vcpu));
            vcpu.load(&Payload { touch: 0..0, doorbell: None, port: 0x10 }).unwrap();
            assert!(says(&vcpu));
            vm.destroy(vec![vcpu]);
        }
    }
}
