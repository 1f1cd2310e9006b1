//! Lines that are read as they were written; and whatever else comes is refused, by its number, or is an event.

use std::fmt::Write;

use mayfly_hwtrace::{
    Barrier, Checker, Event, Family, Lines, Malformed, Options, Reach, Record, Scope, parse,
};
use proptest::prelude::*;

fn events() -> impl Strategy<Value = Event> {
    let frame = 0..1u64 << 52;
    let family = prop::sample::select(vec![
        Family::Arm,
        Family::ArmFwb,
        Family::Ept,
        Family::Npt,
        Family::RiscV,
    ]);
    let reach = prop::sample::select(vec![Reach::Leaves, Reach::Sizes, Reach::Any]);
    let root = (frame.clone(), 0..5u32, 1..6u32, family)
        .prop_map(|(top, order, levels, family)| Event::Root { top, order, levels, family });
    let entry = (frame.clone(), 0..512u32, any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
        |(table, index, old, new, mark)| {
            if mark {
                Event::Mark { table, index, old, new }
            } else {
                Event::Entry { table, index, old, new }
            }
        },
    );
    let fill = (frame.clone(), 0..256u32, 1..256u32, any::<u64>(), any::<u64>()).prop_map(
        |(table, index, count, value, step)| Event::Fill { table, index, count, value, step },
    );
    let vmid =
        (any::<u16>(), any::<u64>(), 0..4u8).prop_map(|(vmid, generation, which)| match which {
            0 => Event::VmidTake { vmid, generation },
            1 => Event::VmidGive { vmid },
            2 => Event::VmidKeep { vmid, generation },
            _ => Event::Generation { generation },
        });
    let guest = (0..1000u32, frame.clone(), any::<u16>(), any::<bool>()).prop_map(
        |(tlb, top, vmid, enter)| {
            if enter { Event::Enter { tlb, top, vmid } } else { Event::Leave { tlb, vmid } }
        },
    );
    let range =
        (0..1u64 << 40, 1..1u64 << 40, 0..19u32, reach).prop_map(|(first, len, stride, reach)| {
            Scope::Range { first, end: first + len, stride: 1 << stride, reach }
        });
    let scope = prop_oneof![Just(Scope::All), range];
    let tlbi = (any::<u64>(), any::<u16>(), scope).prop_map(|(id, vmid, scope)| Event::Tlbi {
        id,
        vmid,
        scope,
    });
    let others = (any::<u64>(), 0..5u8).prop_map(|(id, which)| match which {
        4 => Event::Dropped { count: id },
        0 => Event::TlbiEverything { id },
        1 => Event::Sync { id },
        2 => Event::Barrier { kind: Barrier::Memory },
        _ => Event::Barrier { kind: Barrier::Walks },
    });
    let frames = (frame.clone(), 0..21u32, 0..5u8).prop_map(|(frame, order, which)| match which {
        0 => Event::Give { frame, order },
        1 => Event::Free { frame, order },
        2 => Event::Clean { frame, count: 1 << order },
        3 => Event::Flush { frame, count: 1 << order },
        _ => Event::Fetch { frame, count: 1 << order },
    });
    let access = (0..1000u32, any::<u16>(), frame.clone(), frame, any::<bool>())
        .prop_map(|(tlb, vmid, gfn, frame, write)| Event::Access { tlb, vmid, gfn, frame, write });
    prop_oneof![root, entry, fill, vmid, guest, tlbi, others, frames, access]
}

#[test]
fn a_trace_says_that_events_are_missing() {
    let record = parse("3 4 0 dropped count=7").unwrap();
    assert_eq!(record.event, Event::Dropped { count: 7 });
    let mut checker = Checker::new(Options::default());
    assert_eq!(checker.dropped(), 0);
    checker.take(2, &record);
    checker.take(3, &Record { begin: 5, end: 6, ..record });
    assert_eq!(checker.dropped(), 14);
    assert_eq!(checker.finish(), []);
}

fn read(text: &[u8]) -> Result<u64, Malformed> {
    let (mut lines, options) = Lines::new(text)?;
    let mut checker = Checker::new(options);
    let mut events = 0;
    while let Some((line, record)) = lines.next_record()? {
        checker.take(line, &record);
        events += 1;
    }
    let _ = checker.finish();
    Ok(events)
}

proptest! {
    #[test]
    fn what_is_written_is_read(event in events(), begin in 0..u64::MAX / 2, long in 1..1000u64) {
        let record = Record { begin, end: begin + long, cpu: 7, event };
        prop_assert_eq!(parse(&record.to_string()), Ok(record));
    }

    /// However little sense the events make.
    #[test]
    fn no_order_of_events_stops_the_checker(
        events in prop::collection::vec((events(), 0..8u64, any::<bool>()), 0..200),
        maintained: bool,
    ) {
        let mut text = format!("{}\n", Options { caches_maintained: maintained });
        for (number, (event, back, small)) in (10u64..).zip(events) {
            // Small numbers of frames, so that events have to do with each other.
            let event = if small { shrink(event) } else { event };
            let record = Record { begin: number * 2 - back, end: number * 2 + 1, cpu: 1, event };
            writeln!(text, "{record}").unwrap();
        }
        prop_assert!(read(text.as_bytes()).is_ok());
    }

    #[test]
    fn a_byte_that_is_changed_is_another_event_or_one_line(
        events in prop::collection::vec(events(), 1..5),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut text = format!("{}\n", Options::default());
        for (number, event) in (1u64..).zip(events) {
            let record = Record { begin: number * 2, end: number * 2 + 1, cpu: 1, event };
            writeln!(text, "{record}").unwrap();
        }
        let lines = text.lines().count() as u64;
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Err(Malformed { line, what }) = read(&bytes) {
            prop_assert!((1..=lines + 1).contains(&line) && !what.contains('\n'), "{}: {}", line, what);
        }
    }

    #[test]
    fn whatever_bytes_there_are_something_is_said(bytes: Vec<u8>, headed: bool) {
        let mut text = if headed { b"mayfly-hwtrace 1\n".to_vec() } else { Vec::new() };
        text.extend(&bytes);
        if let Err(Malformed { what, .. }) = read(&text) {
            prop_assert!(!what.is_empty());
        }
    }
}

/// The same event, of one of a few frames.
fn shrink(event: Event) -> Event {
    match event {
        Event::Root { top, order, levels, family } => {
            Event::Root { top: top % 4, order, levels, family }
        }
        Event::Entry { table, index, old, new } => {
            let of = |bits: u64| bits & 0xfff | (bits >> 12 & 3) << 12;
            Event::Entry { table: table % 4, index: index % 2, old: of(old), new: of(new) }
        }
        Event::Fill { table, index, count, value, step } => Event::Fill {
            table: table % 4,
            index,
            count,
            value: value & 0x3fff,
            step: step & 0xfff,
        },
        Event::Enter { tlb, top, vmid } => Event::Enter { tlb, top: top % 4, vmid: vmid % 2 },
        Event::Leave { tlb, vmid } => Event::Leave { tlb, vmid: vmid % 2 },
        Event::Free { frame, .. } => Event::Free { frame: frame % 4, order: 0 },
        Event::Give { frame, .. } => Event::Give { frame: frame % 4, order: 0 },
        other => other,
    }
}

#[test]
fn what_is_no_trace_is_refused_where_it_is_not() {
    for (text, line, what) in [
        ("", 1, "an empty trace"),
        ("hello\n", 1, "not a trace of version 1"),
        ("mayfly-hwtrace 2\n", 1, "not a trace of version 1"),
        ("mayfly-hwtrace 11\n", 1, "unknown version"),
        ("mayfly-hwtrace 1 caches=cold\n", 1, "is no option of the header"),
        ("mayfly-hwtrace 1\n\n# no\n5 4 0 tlbi-sync id=1\n", 4, "ticket 5 is not before 4"),
        ("mayfly-hwtrace 1\n1 4 0 tlbi-sync id=1\n2 3 0 tlbi-sync id=1\n", 3, "out of order"),
        ("mayfly-hwtrace 1\n1 2 0 nap\n", 2, "\"nap\" is no event"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give\n", 2, "vmid= is missing"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=70000\n", 2, "more than 16 bits"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=-1\n", 2, "is no number"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=0x\n", 2, "is no number"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=1 2\n", 2, "one word too many"),
        ("mayfly-hwtrace 1\n1 2 0 entry table=1 index=512 old=0 new=0\n", 2, "not below 512"),
        ("mayfly-hwtrace 1\n1 2 0 fill table=1 index=2 count=511 value=0 step=0\n", 2, "not below"),
        (
            "mayfly-hwtrace 1\n1 2 0 tlbi id=1 vmid=1 first=2 end=2 stride=1 reach=any\n",
            2,
            "no frames",
        ),
        ("mayfly-hwtrace 1\n1 2 0 give frame=0x10000000000000 order=0\n", 2, "more than 52 bits"),
        ("mayfly-hwtrace 1\n1 2 99999999999 vmid-give vmid=1\n", 2, "out of range"),
        ("mayfly-hwtrace 1\r\n1 2 0 vmid-give vmid=1\r\n", 1, "carriage return"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=1\r\n", 2, "carriage return"),
        ("mayfly-hwtrace 1\n# a comment\r\n", 2, "carriage return"),
        ("mayfly-hwtrace 1", 1, "cut off"),
        // Of VMID 12 perhaps.
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=1", 2, "cut off"),
        ("mayfly-hwtrace 1\n1 2 0 vmid-give vmid=1\n# no", 3, "cut off"),
        ("mayfly-hwtrace 1\n# d\u{e9}j\u{e0} vu\n", 2, "not ASCII"),
    ] {
        let Malformed { line: found, what: said } = read(text.as_bytes()).unwrap_err();
        assert!((found, said.contains(what)) == (line, true), "{text:?}: {found}: {said}");
    }
    let long = format!("mayfly-hwtrace 1\n{}\n", "1".repeat(600));
    assert_eq!(read(long.as_bytes()).unwrap_err().line, 2);
    assert_eq!(read(b"mayfly-hwtrace 1\n\xff\n").unwrap_err().what, "not ASCII text");
}

#[test]
fn spaces_may_be_many_tabs_or_at_the_end_of_a_line() {
    let text = "mayfly-hwtrace 1 caches=coherent \n \n1  2\t0 vmid-give  vmid=1 \t\n";
    assert_eq!(read(text.as_bytes()), Ok(1));
    let (plain, spaced) = ("1 2 0 vmid-give vmid=1", " 1  2\t0 vmid-give  vmid=1 \t");
    assert_eq!(parse(spaced), parse(plain));
}

#[test]
fn a_cpu_that_leaves_what_it_has_not_entered_was_there_before_the_trace() {
    let mut checker = Checker::new(Options::default());
    let root = "root top=0x100 order=0 levels=1 format=arm";
    // Never entered; under another VMID than it entered; twice.
    let events = [
        root,
        "leave tlb=3 vmid=7",
        "vmid-take vmid=7 generation=0",
        "enter tlb=3 top=0x100 vmid=7",
        "leave tlb=3 vmid=8",
        "leave tlb=3 vmid=7",
        "leave tlb=3 vmid=7",
    ];
    for (line, event) in (1u64..).zip(events) {
        let record = parse(&format!("{} {} 0 {event}", 2 * line, 2 * line + 1)).unwrap();
        checker.take(line, &record);
    }
    assert_eq!(checker.finish(), []);
}
