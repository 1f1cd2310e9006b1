//! What an invalidation reaches, what an entry allows in each format, and whose a VMID is.

mod common;

/// The rules that events break which follow each other, of a root with that many levels in that format, which a CPU is in.
fn rules(format: &str, levels: u32, events: &str) -> Vec<&'static str> {
    let begin = format!(
        "0 root top=0x100 order=0 levels={levels} format={format}
        0 vmid-take vmid=7 generation=1
        1 enter tlb=1 top=0x100 vmid=7
        {events}"
    );
    common::rules("", &begin)
}

#[test]
fn a_block_is_reached_by_any_address_in_it_if_its_size_does_not_matter() {
    let unmapped = |tlbi: &str| {
        let events = format!(
            "0 give frame=0x200 order=9
            0 entry table=0x100 index=0 old=0 new=0x2007fd
            0 entry table=0x100 index=0 old=0x2007fd new=0
            0 barrier orders=walks
            0 {tlbi}
            0 tlbi-sync id=1
            0 free frame=0x200 order=9
            1 leave tlb=1 vmid=7"
        );
        rules("arm", 2, &events)
    };
    assert_eq!(unmapped("tlbi id=1 vmid=7 first=5 end=6 stride=1 reach=sizes"), [""; 0]);
    assert_eq!(unmapped("tlbi id=1 vmid=7 first=0 end=512 stride=512 reach=leaves"), [""; 0]);
    assert_eq!(unmapped("tlbi id=1 vmid=7 first=5 end=6 stride=1 reach=leaves"), ["frame-freed"]);
    assert_eq!(unmapped("tlbi id=1 vmid=7 first=512 end=513 stride=1 reach=any"), ["frame-freed"]);
}

#[test]
fn a_guest_writes_only_where_an_entry_allows_it() {
    // Frame 0x300, to be read and executed; and the bit that allows writes.
    for (format, bits, write) in [
        ("arm", 0x30_077f, 0x80),
        ("ept", 0x30_0035, 2),
        ("npt", 0x30_0005, 2),
        ("riscv", 0xc_00db, 4),
    ] {
        let written = |bits: u64| {
            let entry = format!("0 entry table=0x100 index=5 old=0 new={bits:#x}");
            let access = "1 access tlb=1 vmid=7 gfn=5 frame=0x300 write=1";
            rules(format, 1, &format!("{entry}\n{access}"))
        };
        assert_eq!(written(bits | write), [""; 0], "{format}");
        assert_eq!(written(bits), ["stale-access"], "{format}");
    }
}

#[test]
fn a_right_to_write_that_was_taken_away_and_invalidated_is_not_used() {
    let protected = "0 entry table=0x100 index=5 old=0 new=0x3007ff
        0 entry table=0x100 index=5 old=0x3007ff new=0x30077f
        0 barrier orders=walks
        0 tlbi-all id=1 vmid=7
        0 tlbi-sync id=1
        1 access tlb=1 vmid=7 gfn=5 frame=0x300 write=";
    assert_eq!(rules("arm", 1, &format!("{protected}0")), [""; 0]);
    assert_eq!(rules("arm", 1, &format!("{protected}1")), ["stale-access"]);
}

#[test]
fn a_vmid_is_not_anothers_as_long_as_a_cpu_is_in_its_guest() {
    let given = |leaves: &str| {
        let events = format!(
            "{leaves}
            0 root top=0x101 order=0 levels=1 format=arm
            0 tlbi-all id=1 vmid=7
            0 tlbi-sync id=1
            2 enter tlb=2 top=0x101 vmid=7"
        );
        rules("arm", 1, &events)
    };
    assert_eq!(given("1 leave tlb=1 vmid=7"), [""; 0]);
    assert_eq!(given(""), ["vmid-reused"]);
}

#[test]
fn a_table_in_the_place_of_another_is_one_that_walk_caches_have_to_be_told_of() {
    for format in ["ept", "npt"] {
        let replaced = |reach: &str| {
            let events = format!(
                "0 give frame=0x200 order=0
                0 entry table=0x100 index=0 old=0 new=0x200007
                0 entry table=0x100 index=0 old=0x200007 new=0x201007
                0 tlbi id=1 vmid=7 first=0 end=512 stride=1 reach={reach}
                0 tlbi-sync id=1
                0 free frame=0x200 order=0
                1 leave tlb=1 vmid=7"
            );
            rules(format, 2, &events)
        };
        assert_eq!(replaced("any"), [""; 0], "{format}");
        assert_eq!(replaced("sizes"), ["table-freed"], "{format}");
    }
}

#[test]
fn a_vmid_is_kept_for_one_generation() {
    let rolled = |keeps: &str| {
        let events = format!(
            "1 leave tlb=1 vmid=7
            0 vmid-keep vmid=7 generation=2
            0 generation generation=2
            {keeps}
            0 generation generation=3
            1 enter tlb=1 top=0x100 vmid=7"
        );
        rules("arm", 1, &events)
    };
    assert_eq!(rolled("0 vmid-keep vmid=7 generation=3"), [""; 0]);
    assert_eq!(rolled(""), ["vmid-not-taken"]);
}
