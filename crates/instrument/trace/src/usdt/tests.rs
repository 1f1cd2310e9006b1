use proptest::prelude::*;

use super::*;

/// Where the text and the data of the files below are in memory, and in the file.
const TEXT: (u64, u64) = (0x40_1000, 0x1000);
const DATA: (u64, u64) = (0x60_0000, 0x3000);

/// The strings of a note, after its addresses.
pub(crate) fn note(numbers: [u64; 3], strings: &str) -> Vec<u8> {
    let text: Vec<u8> =
        numbers.iter().flat_map(|number| number.to_le_bytes()).chain(strings.bytes()).collect();
    let mut note = Vec::new();
    for number in [8, text.len() as u32, TYPE] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"stapsdt\0");
    note.extend(text);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

/// An ELF file for 64 bits with these notes, of which `.stapsdt.base` is at an address.
pub(crate) fn file(notes: &[u8], base: u64) -> Vec<u8> {
    let names = b"\0.note.stapsdt\0.stapsdt.base\0.shstrtab\0";
    let (segments, sections) = (64, 64 + 2 * 56);
    let notes_at = sections + 4 * 64;
    let names_at = notes_at + notes.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, numbers: &[u16]| {
        for number in numbers {
            file.extend(number.to_le_bytes());
        }
    };
    let word = |file: &mut Vec<u8>, numbers: &[u32]| {
        for number in numbers {
            file.extend(number.to_le_bytes());
        }
    };
    let long = |file: &mut Vec<u8>, numbers: &[u64]| {
        for number in numbers {
            file.extend(number.to_le_bytes());
        }
    };
    half(&mut file, &[2, 62]);
    word(&mut file, &[1]);
    long(&mut file, &[TEXT.0, segments, sections]);
    word(&mut file, &[0]);
    half(&mut file, &[64, 56, 2, 64, 4, 3]);
    for (flags, (at, offset), size) in [(5, TEXT, 0x800), (6, DATA, 0x100)] {
        word(&mut file, &[PT_LOAD, flags]);
        long(&mut file, &[offset, at, at, size, size, 0x1000]);
    }
    let mut section = |name: u32, kind: u32, at: u64, offset: u64, size: u64| {
        word(&mut file, &[name, kind]);
        long(&mut file, &[0, at, offset, size]);
        word(&mut file, &[0, 0]);
        long(&mut file, &[4, 0]);
    };
    section(0, 0, 0, 0, 0);
    section(1, 7, 0, notes_at, notes.len() as u64);
    section(15, 1, base, 0, 1);
    section(29, 3, 0, names_at, names.len() as u64);
    file.extend(notes);
    file.extend(names);
    file
}

fn probe() -> Probe {
    "/bin/vmm:vmm:asked".parse().unwrap()
}

fn sites(file: &[u8]) -> Vec<Site> {
    probe().sites_in(file).unwrap()
}

#[test]
fn a_probe_is_found_by_its_names_at_each_of_its_places() {
    let notes = [
        note([0x40_1010, 0x50_0000, 0x60_0008], "vmm\0asked\0-4@%eax\0"),
        note([0x40_1020, 0x50_0000, 0], "vmm\0other\0\0"),
        note([0x40_1030, 0x50_0000, 0], "vmm\0asked\0\0"),
        // It is of no code that is there.
        note([0x70_0000, 0x50_0000, 0], "vmm\0asked\0\0"),
    ];
    let notes = notes.concat();
    let both = |moved: u64| {
        let site = |offset, counter| Site { offset: offset + moved, counter };
        vec![site(0x1010, Some(0x3008 + moved)), site(0x1030, None)]
    };
    assert_eq!(sites(&file(&notes, 0x50_0000)), both(0));
    assert_eq!(sites(&file(&notes, 0x50_0020)), both(0x20));
    assert_eq!(sites(&file(&[], 0)), []);
}

#[test]
fn a_note_that_is_cut_short_is_none() {
    for text in ["vmm\0asked", "vmm", ""] {
        assert_eq!(sites(&file(&note([0x40_1010, 0, 0], text), 0)), [], "{text:?}");
    }
    let mut short = note([0x40_1010, 0, 0], "vmm\0asked\0\0");
    short[4..8].copy_from_slice(&20u32.to_le_bytes());
    short.truncate(40);
    assert_eq!(sites(&file(&short, 0)), []);
    // It says that it is longer than its section.
    short[4..8].copy_from_slice(&4000u32.to_le_bytes());
    assert!(probe().sites_in(&file(&short, 0)[..]).is_err());
}

proptest! {
    #[test]
    fn whatever_a_file_has_is_an_answer(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40), length in 0usize..900) {
        let mut file = file(&note([0x40_1010, 0x50_0000, 0x60_0008], "vmm\0asked\0\0"), 0x50_0000);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.truncate(length);
        let found = probe().sites_in(&file[..]).unwrap_or_default();
        prop_assert!(found.len() <= 1);
    }
}

#[test]
fn a_file_that_is_none_and_one_without_the_probe_are_errors() {
    let error = |path: &str| {
        let probe = Probe { path: path.into(), ..probe() };
        probe.sites().map_err(|error| error.kind())
    };
    assert_eq!(error("/nothing"), Err(io::ErrorKind::NotFound));
    assert_eq!(error("/proc/self/status"), Err(io::ErrorKind::InvalidData));
    let me = std::env::current_exe().unwrap();
    assert_eq!(error(me.to_str().unwrap()), Err(io::ErrorKind::InvalidData));
}

#[test]
fn a_probe_is_written_with_its_file_first() {
    let said = "/a:b/vmm:vmm:asked".parse::<Probe>().unwrap();
    assert_eq!(
        (said.path.to_str(), &said.provider[..], &said.name[..]),
        (Some("/a:b/vmm"), "vmm", "asked")
    );
    assert_eq!(said.to_string(), "usdt:/a:b/vmm:vmm:asked");
    for text in ["", "vmm", "vmm:asked", ":vmm:asked", "vmm::asked", "vmm:asked:"] {
        assert!(text.parse::<Probe>().is_err(), "{text}");
    }
    let directory = std::env::temp_dir().join(format!("a blank {}", std::process::id()));
    std::fs::write(&directory, "").unwrap();
    assert!(traced_path(&directory).is_err() && traced_path(Path::new("/proc")).is_ok());
    std::fs::remove_file(directory).unwrap();
}
