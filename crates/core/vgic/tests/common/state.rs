//! States of a GIC.

use mayfly_state::{Error, State, Writer};
use mayfly_vgic::{Config, CpuInterface, DISTRIBUTOR_STATE, Kick, VCPU_STATE, VcpuInside, Vgic};

/// The state of a GIC with these vCPUs.
pub(crate) fn saved<K: Kick>(gic: &Vgic<K>, cpus: &[CpuInterface]) -> Result<Vec<u8>, VcpuInside> {
    let mut bytes = vec![0; 0x1_0000];
    let mut writer = Writer::new(&mut bytes);
    writer.section(DISTRIBUTOR_STATE, 0, |to| gic.save_distributor(to))?;
    for (number, cpu) in (0..).zip(cpus) {
        writer.section(VCPU_STATE, number, |to| gic.save_vcpu(cpu, to))?;
    }
    let len = writer.finish().unwrap();
    bytes.truncate(len);
    Ok(bytes)
}

/// What is made of a state, on a machine of so many list registers.
pub(crate) fn loaded<K: Kick>(
    bytes: &[u8],
    config: Config<'_>,
    kick: K,
) -> Result<(Vgic<K>, Vec<CpuInterface>), Error> {
    let mut sections = State::open(bytes)?.sections();
    let mut gic = Vgic::try_new(config, kick).unwrap();
    gic.load_distributor(sections.take(DISTRIBUTOR_STATE, 0)?)?;
    let mut cpus = Vec::new();
    for vcpu in 0..config.vcpus {
        cpus.push(gic.load_vcpu(vcpu, sections.take(VCPU_STATE, vcpu as u32)?)?);
    }
    sections.end()?;
    Ok((gic, cpus))
}
