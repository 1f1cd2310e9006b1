//! States of APICs.

use mayfly_state::{Error, State, Writer};
use mayfly_vapic::{Config, IOAPIC_STATE, Kick, LOCAL_STATE, LocalApic, UnderWay, Vapic};

/// The state of these.
pub(crate) fn saved<K: Kick>(vapic: &Vapic<K>, apics: &[LocalApic]) -> Result<Vec<u8>, UnderWay> {
    let mut bytes = vec![0; 0x1_0000];
    let mut writer = Writer::new(&mut bytes);
    writer.section(IOAPIC_STATE, 0, |to| vapic.save_ioapic(to))?;
    for (number, apic) in (0..).zip(apics) {
        writer.section(LOCAL_STATE, number, |to| vapic.save_local(apic, to));
    }
    let len = writer.finish().unwrap();
    bytes.truncate(len);
    Ok(bytes)
}

/// What is made of a state, on a machine like this.
pub(crate) fn loaded<K: Kick>(
    bytes: &[u8],
    config: Config,
    kick: K,
) -> Result<(Vapic<K>, Vec<LocalApic>), Error> {
    let mut sections = State::open(bytes)?.sections();
    let mut vapic = Vapic::try_new(config, kick).unwrap();
    vapic.load_ioapic(sections.take(IOAPIC_STATE, 0)?)?;
    let mut apics = Vec::new();
    for vcpu in 0..config.vcpus {
        apics.push(vapic.load_local(vcpu, sections.take(LOCAL_STATE, vcpu as u32)?)?);
    }
    sections.end()?;
    Ok((vapic, apics))
}
