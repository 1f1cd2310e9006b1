use super::*;
use crate::record::{Call, Cause, Phase, Sample, Thread};

fn trace() -> Trace {
    let phase = |name: &str, at, took| Phase { name: name.into(), at, took, ..Phase::default() };
    let call = |tid, at, took, name: &str| Call {
        tid,
        pid: 1,
        at,
        took,
        name: name.into(),
        ..Call::default()
    };
    let thread = |tid, vcpu| Thread { tid, pid: 1, vcpu, ..Thread::default() };
    let cause =
        Cause { code: "grace-period".into(), what: "a <grace> period".into(), ..Cause::default() };
    let stall =
        |what: &str, at, took| Stall { what: what.into(), tid: 1, at, took, ..Stall::default() };
    Trace {
        command: vec!["/bin/<vmm>".into()],
        span: 100_000_000,
        threads: vec![thread(1, false), thread(2, true), thread(3, false)],
        calls: vec![
            call(1, 10_000_000, Some(9_000_000), "KVM_CREATE_VM"),
            call(1, 30_000_000, Some(20_000_000), "munmap"),
            call(2, 60_000_000, None, "KVM_RUN"),
        ],
        samples: vec![Sample {
            tid: 2,
            at: 61_000_000,
            took: 5_000_000,
            call: Some((16, [3, 0xAE80, 0, 0])),
            ..Sample::default()
        }],
        phases: vec![
            phase("VM created", 19_000_000, 19_000_000),
            phase("first entry", 60_000_000, 41_000_000),
        ],
        stalls: vec![
            Stall { cause: Some(cause), ..stall("munmap", 30_000_000, 20_000_000) },
            stall("KVM_CREATE_VM", 10_000_000, 9_000_000),
            stall("a sleep", 35_000_000, 1_000_000),
        ],
        ..Trace::default()
    }
}

#[test]
fn the_timeline_comes_first_and_everything_has_its_place_on_it() {
    let page = Page(&[trace()]).to_string();
    let picture = page.find("<svg").unwrap();
    assert!(picture < page.find("<table").unwrap());
    let svg = &page[picture..page.find("</svg>").unwrap()];
    for (class, count) in
        [("kvm", 2), ("call", 1), ("guest", 1), ("wait", 3), ("phase", 1), ("phase other", 1)]
    {
        assert_eq!(
            svg.matches(&format!("<rect class=\"{class}\"")).count(),
            count,
            "{class}: {svg}"
        );
    }
    // 10 ms of 100 ms, on a picture that begins at 230 and is 1000 wide.
    assert!(svg.contains("class=\"kvm\" x=\"330.00\""), "{svg}");
    assert!(svg.contains("width=\"90.00\""), "{svg}");
    // One row of phases, two of waits, and the threads of which something is known.
    for (name, count) in [
        (">phases<", 1),
        (">waits<", 2),
        (">thread 1<", 1),
        (">a vCPU, thread 2<", 1),
        ("thread 3", 0),
    ] {
        assert_eq!(svg.matches(name).count(), count, "{name}: {svg}");
    }
}

#[test]
fn each_table_scrolls_by_itself_where_the_page_is_narrow() {
    let page = Page(&[trace()]).to_string();
    let tables = page.matches("<table").count();
    assert!(tables > 1, "{page}");
    assert_eq!(page.matches("<div class=\"table\"><table").count(), tables);
}

#[test]
fn what_a_program_is_called_is_text_and_not_markup() {
    let page = Page(&[trace()]).to_string();
    assert!(!page.contains("<vmm>") && !page.contains("<grace>"));
    assert!(page.contains("&lt;vmm&gt;") && page.contains("a &lt;grace&gt; period"));
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("src="));
}

#[test]
fn several_traces_are_one_after_the_other_and_an_empty_one_is_a_page_too() {
    let page = Page(&[trace(), Trace::default()]).to_string();
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("Mayfly, 2 traces"));
    assert!(page.contains("No wait of half a tick or more."));
}
