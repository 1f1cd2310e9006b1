//! The format: what was written is read again, and nothing else is read as a state.

use mayfly_state::{Error, Id, Kind, MAX_BYTES, NoRoom, SectionReader, Sections, State, Writer};
use proptest::prelude::*;

const A: Kind = Kind::new("a", 1);
const B: Kind = Kind::new("a-longer-name-16", 7);
const KINDS: [Kind; 2] = [A, B];

/// A field that is written, and is to be read.
#[derive(Clone, Debug)]
enum Field {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    U128(u128),
    Words([u64; 3]),
    Align,
    Flag(bool),
    Bytes([u8; 5]),
}

type Section = (usize, u32, Vec<Field>);

fn any_field() -> impl Strategy<Value = Field> {
    prop_oneof![
        any::<u8>().prop_map(Field::U8),
        any::<u16>().prop_map(Field::U16),
        any::<u32>().prop_map(Field::U32),
        any::<u64>().prop_map(Field::U64),
        any::<u128>().prop_map(Field::U128),
        any::<[u64; 3]>().prop_map(Field::Words),
        Just(Field::Align),
        any::<bool>().prop_map(Field::Flag),
        any::<[u8; 5]>().prop_map(Field::Bytes),
    ]
}

fn any_sections() -> impl Strategy<Value = Vec<Section>> {
    let fields = prop::collection::vec(any_field(), 0..8);
    prop::collection::vec((0..KINDS.len(), 0..2_u32, fields), 0..5)
}

fn write(buffer: &mut [u8], sections: &[Section]) -> Result<usize, NoRoom> {
    let mut writer = Writer::new(buffer);
    for (kind, number, fields) in sections {
        writer.section(KINDS[*kind], *number, |to| {
            for field in fields {
                match *field {
                    Field::U8(value) => to.u8(value),
                    Field::U16(value) => to.u16(value),
                    Field::U32(value) => to.u32(value),
                    Field::U64(value) => to.u64(value),
                    Field::U128(value) => to.u128(value),
                    Field::Words(values) => to.words(&values),
                    Field::Align => to.align(),
                    Field::Flag(value) => to.flag(value),
                    Field::Bytes(value) => to.bytes(&value),
                }
            }
        });
    }
    writer.finish()
}

fn saved(sections: &[Section]) -> Vec<u8> {
    let NoRoom { needed, .. } = write(&mut [], sections).unwrap_err();
    let mut bytes = vec![0xee; needed];
    assert_eq!(write(&mut bytes, sections), Ok(needed));
    bytes
}

fn read(mut from: SectionReader<'_>, fields: &[Field]) -> Result<(), Error> {
    for field in fields {
        match *field {
            Field::U8(value) => assert_eq!(from.u8("u8")?, value),
            Field::U16(value) => assert_eq!(from.u16("u16")?, value),
            Field::U32(value) => assert_eq!(from.u32("u32")?, value),
            Field::U64(value) => assert_eq!(from.u64("u64")?, value),
            Field::U128(value) => assert_eq!(from.u128("u128")?, value),
            Field::Align => from.align()?,
            Field::Words(values) => {
                let mut read = [0; 3];
                from.words("words", &mut read)?;
                assert_eq!(read, values);
            }
            Field::Flag(value) => assert_eq!(from.flag("flag")?, value),
            Field::Bytes(value) => assert_eq!(from.bytes("bytes")?, value),
        }
    }
    from.end()
}

/// The next section, if it is one that is known here.
fn next<'a>(sections: &mut Sections<'a>) -> Option<SectionReader<'a>> {
    assert!(sections.next_id().is_none_or(|id| !id.to_string().is_empty()));
    let all = KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
    all.into_iter().find_map(|(kind, number)| sections.take(kind, number).ok())
}

/// Gives `bytes` the checksum that they are to have.
fn seal(bytes: &mut [u8]) {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// A section of 3 bytes, and one of none.
fn small() -> Vec<u8> {
    saved(&[(0, 5, vec![Field::U16(0x1234), Field::Flag(true)]), (1, 0, vec![])])
}

#[test]
fn the_bytes_of_a_state_are_as_the_format_has_them() {
    let bytes = small();
    let mut expected = b"mayflyvm\x01\0\0\0????\x68\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
    expected.extend(b"a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0");
    expected.extend(b"\x34\x12\x01\0\0\0\0\0");
    expected.extend(b"a-longer-name-16\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0");
    seal(&mut expected);
    assert_eq!(bytes, expected);
    assert_eq!(bytes[12..16], 0x60b0_ba48_u32.to_le_bytes(), "zlib's CRC-32 of the others");
}

#[test]
fn each_flipped_bit_is_an_error() {
    let bytes = small();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(State::open(&flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn a_state_that_is_cut_or_followed_by_something_is_an_error() {
    let bytes = small();
    for len in 0..bytes.len() {
        let expected = match len {
            0..32 => Error::Short(len),
            _ => Error::Length { said: bytes.len() as u64, given: len },
        };
        assert_eq!(State::open(&bytes[..len]).unwrap_err(), expected);
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(State::open(&longer), Err(Error::Length { .. })));
    assert_eq!(State::open(&vec![0; MAX_BYTES + 1]).unwrap_err(), Error::Long(MAX_BYTES + 1));
}

#[test]
fn headers_that_make_no_sense_are_errors_though_the_checksum_is_right() {
    let with = |at: usize, with: &[u8]| {
        let mut bytes = small();
        bytes[at..at + with.len()].copy_from_slice(with);
        seal(&mut bytes);
        State::open(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(0, b"elf"), Error::Magic);
    assert_eq!(with(8, &[2]), Error::Version(2));
    assert_eq!(with(28, &[1]), Error::Reserved(1));
    let first = Error::Header { index: 0, offset: 32 };
    for (at, bytes) in [(32, &b"A"[..]), (32, b"\0"), (34, b"a"), (60, &[1]), (67, &[1])] {
        assert_eq!(with(at, bytes), first, "byte {at}");
    }
    for len in [41, u32::MAX, u32::MAX - 7] {
        assert_eq!(with(56, &len.to_le_bytes()), first, "a length of {len}");
    }
    assert_eq!(with(24, &[3]), Error::Header { index: 2, offset: 104 });
    assert_eq!(with(24, &[255, 255, 255, 255]), Error::Header { index: 2, offset: 104 });
    assert_eq!(with(24, &[1]), Error::Stray(32));
}

#[test]
fn a_machine_is_told_by_name_of_sections_that_it_does_not_expect() {
    let bytes = small();
    let state = State::open(&bytes).unwrap();
    let mut sections = state.sections();
    let error = sections.take(B, 3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state has section `a` 5 where this machine has `a-longer-name-16` 3",
    );
    let error = sections.take(Kind::new("a", 2), 5).unwrap_err();
    assert_eq!(error.to_string(), "section `a` 5 is of version 1; version 2 is known");
    sections.take(A, 5).unwrap();
    assert_eq!(sections.next_id(), Some(Id::new(B, 0)));
    let error = sections.clone().end().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state has section `a-longer-name-16` 0, which this machine has not",
    );
    sections.take(B, 0).unwrap();
    assert_eq!(sections.take(A, 1).unwrap_err().to_string(), "the state has no section `a` 1");
    assert_eq!(sections.end(), Ok(()));
}

#[test]
fn a_field_that_is_cut_or_cannot_be_so_is_named() {
    let bytes = small();
    let mut from = State::open(&bytes).unwrap().sections().take(A, 5).unwrap();
    from.of(4);
    assert_eq!(from.u32("size").unwrap_err().to_string(), "section `a` 5 ends before size of 4");
    from.of_all();
    let error = from.bits64("features", 0).unwrap_err().to_string();
    assert_eq!(error, "section `a` 5 ends before features");
    assert_eq!(from.u8("low").unwrap(), 0x34);
    let error = from.flag("is_on").unwrap_err();
    assert_eq!(error.to_string(), "section `a` 5 has 0x12 as is_on");
    let error = from.end().unwrap_err();
    assert_eq!(error.to_string(), "section `a` 5 has 1 bytes behind its last field");

    let bytes = saved(&[(0, 0, vec![Field::U32(9), Field::U32(9), Field::U64(9), Field::U64(9)])]);
    let mut from = State::open(&bytes).unwrap().sections().take(A, 0).unwrap();
    assert!(from.count("entries", 8).is_err());
    assert_eq!(from.bits("mask", 8).unwrap_err().to_string(), "section `a` 0 has 0x9 as mask");
    assert!(from.bits64("mask", 1).is_err());
    assert!(from.expect("frequency", 8).is_err());
    assert_eq!(from.end(), Ok(()));
}

#[test]
fn padding_that_is_not_zero_is_refused() {
    let bytes = saved(&[(0, 0, vec![Field::U64(1)])]);
    let mut from = State::open(&bytes).unwrap().sections().take(A, 0).unwrap();
    assert_eq!(from.align(), Ok(()));
    from.u8("low").unwrap();
    assert_eq!(from.align(), Ok(()));
    assert_eq!(from.align(), Ok(()));
    let bytes = saved(&[(0, 0, vec![Field::U64(1 << 63), Field::U16(7)])]);
    let mut from = State::open(&bytes).unwrap().sections().take(A, 0).unwrap();
    from.u8("low").unwrap();
    assert_eq!(from.align().unwrap_err().to_string(), "section `a` 0 has 0x80 as padding");
}

#[test]
fn a_buffer_that_is_too_short_says_how_much_is_needed() {
    let bytes = small();
    let sections = [(0, 5, vec![Field::U16(0x1234), Field::Flag(true)]), (1, 0, vec![])];
    for room in 0..bytes.len() {
        let mut buffer = vec![0; room];
        assert_eq!(write(&mut buffer, &sections), Err(NoRoom { needed: bytes.len(), room }));
        assert!(State::open(&buffer).is_err(), "it is no state");
    }
}

#[test]
fn a_state_that_no_reader_would_take_is_not_written() {
    let mut buffer = vec![0; MAX_BYTES + 8];
    let mut writer = Writer::new(&mut buffer);
    writer.section(A, 0, |to| to.bytes(&vec![0; MAX_BYTES - 64]));
    assert_eq!(writer.finish(), Ok(MAX_BYTES));
    let mut writer = Writer::new(&mut buffer);
    writer.section(A, 0, |to| to.bytes(&vec![0; MAX_BYTES - 63]));
    assert_eq!(writer.finish(), Err(NoRoom { needed: MAX_BYTES + 8, room: MAX_BYTES }));
}

#[test]
fn a_caller_that_has_interrupts_masked_may_look_for_them_after_each_4_kib_and_64_sections() {
    let mut buffer = vec![0; 0x4_0000];
    let mut writer = Writer::new(&mut buffer);
    for number in 0..640 {
        writer.section(A, number, |to| to.bytes(&[7; 200]));
    }
    let mut pauses = 0;
    let len = writer.finish_with_pauses(&mut || pauses += 1).unwrap();
    assert_eq!(pauses, len.div_ceil(4096));
    pauses = 0;
    State::open_with_pauses(&buffer[..len], &mut || pauses += 1).unwrap();
    assert_eq!(pauses, len.div_ceil(4096) + 10);
}

proptest! {
    #[test]
    fn what_was_written_is_read_again(sections in any_sections()) {
        let bytes = saved(&sections);
        let state = State::open(&bytes).unwrap();
        let mut left = state.sections();
        for (kind, number, fields) in &sections {
            prop_assert_eq!(read(left.take(KINDS[*kind], *number).unwrap(), fields), Ok(()));
        }
        prop_assert_eq!(left.end(), Ok(()));
    }

    #[test]
    fn any_flipped_bits_are_an_error(
        sections in any_sections(),
        bits in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let bytes = saved(&sections);
        let mut flipped = bytes.clone();
        for bit in bits {
            let bit = bit.index(bytes.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assume!(flipped != bytes);
        prop_assert!(State::open(&flipped).is_err());
    }

    /// Each error is an error, and no panic; what is opened can be read to its end.
    #[test]
    fn bytes_that_somebody_has_made_up_are_read_or_refused(
        sections in any_sections(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in 0..40_usize,
    ) {
        let mut bytes = saved(&sections);
        bytes.truncate(bytes.len().saturating_sub(cut).max(32));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let len = bytes.len() as u64;
        bytes[..12].copy_from_slice(b"mayflyvm\x01\0\0\0");
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        seal(&mut bytes);
        if let Ok(state) = State::open(&bytes) {
            let mut left = state.sections();
            while let Some(mut from) = next(&mut left) {
                while from.u64("word").is_ok() {}
            }
        }
    }
}
