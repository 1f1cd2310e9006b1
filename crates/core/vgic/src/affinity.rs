//! Which affinity a vCPU has: 16 vCPUs share the levels above the lowest, since `ICC_SGI1R_EL1` names 16 targets at once.
//!
//! It is the affinity that KVM gives a vCPU, too (`reset_mpidr` in `arch/arm64/kvm/sys_regs.c`).

/// The most vCPUs that a [`Vgic`](crate::Vgic) has: as many as KVM's (`VGIC_V3_MAX_CPUS`).
pub const MAX_VCPUS: usize = 512;

/// The affinity fields of `MPIDR_EL1` of vCPU `index`, which is below [`MAX_VCPUS`]: `Aff0` in bits 7 to 0, `Aff1` in
/// bits 15 to 8. The levels above are zero. An embedder that shows the guest its `MPIDR_EL1` takes it from here, for
/// interrupts are routed by it.
///
/// ```
/// assert_eq!(mayfly_vgic::affinity(3), 0x003);
/// assert_eq!(mayfly_vgic::affinity(18), 0x102);
/// ```
pub const fn affinity(index: usize) -> u64 {
    ((index % 16) | (index / 16 % 256) << 8) as u64
}

/// The vCPU that `Aff2.Aff1.Aff0` names, if it could be one.
pub(crate) const fn index(affinity: u32) -> Option<usize> {
    let (aff0, aff1, above) = (affinity & 0xff, affinity >> 8 & 0xff, affinity >> 16);
    if aff0 < 16 && above == 0 { Some((aff0 + 16 * aff1) as usize) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vcpu_has_an_affinity_of_its_own_and_is_found_by_it() {
        for vcpu in 0..MAX_VCPUS {
            assert_eq!(index(affinity(vcpu) as u32), Some(vcpu));
        }
        for nobody in [0x10, 0xff, 0x1_0000, 0xff_ffff] {
            assert_eq!(index(nobody), None, "{nobody:#x}");
        }
    }
}
