//! States of one section, and such that somebody has made up.

use mayfly_state::{Error, Kind, NoRoom, SectionReader, SectionWriter, State, Writer};
use proptest::prelude::*;

/// `PROPTEST_CASES` says how many more; devices with memory take long.
pub(crate) fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(64) }
}

/// A state with one section, which `fill` writes.
pub(crate) fn saved(kind: Kind, fill: impl Fn(&mut SectionWriter<'_, '_>)) -> Vec<u8> {
    let write = |buffer: &mut [u8]| {
        let mut writer = Writer::new(buffer);
        writer.section(kind, 0, &fill);
        writer.finish()
    };
    let NoRoom { needed, .. } = write(&mut []).unwrap_err();
    let mut bytes = vec![0; needed];
    write(&mut bytes).unwrap();
    bytes
}

/// What `load` makes of the only section of a state.
pub(crate) fn loaded<T>(
    bytes: &[u8],
    kind: Kind,
    load: impl FnOnce(SectionReader<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut sections = State::open(bytes)?.sections();
    let loaded = load(sections.take(kind, 0)?)?;
    sections.end()?;
    Ok(loaded)
}

/// What of a section is another: bytes that are put in the place of others, and the new end.
#[derive(Clone, Debug)]
pub(crate) struct Forgery {
    bytes: Vec<(prop::sample::Index, u8)>,
    longer: Vec<u8>,
    shorter: usize,
}

pub(crate) fn any_forgery() -> impl Strategy<Value = Forgery> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()];
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), byte), 0..4);
    let ends = prop_oneof![
        8 => Just((Vec::new(), 0)),
        1 => prop::collection::vec(any::<u8>(), 1..4).prop_map(|longer| (longer, 0)),
        1 => (1..9_usize).prop_map(|shorter| (Vec::new(), shorter)),
    ];
    (bytes, ends).prop_map(|(bytes, (longer, shorter))| Forgery { bytes, longer, shorter })
}

/// The same state with another section, and the checksum that belongs to that.
pub(crate) fn forged(state: &[u8], kind: Kind, forgery: &Forgery) -> Vec<u8> {
    let mut section = Vec::new();
    let mut from = State::open(state).unwrap().sections().take(kind, 0).unwrap();
    while let Ok(byte) = from.u8("byte") {
        section.push(byte);
    }
    for (at, byte) in &forgery.bytes {
        let at = at.index(section.len());
        section[at] = *byte;
    }
    section.truncate(section.len().saturating_sub(forgery.shorter));
    section.extend(&forgery.longer);
    saved(kind, |to| to.bytes(&section))
}
