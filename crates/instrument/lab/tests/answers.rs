//! The answers that experiments give, from rows made up here.

use mayfly_lab::{answer, experiments};
use mayfly_record::{Backend, Host, ResultRow, Samples, Unit};

/// A row of which every metric that is named takes `ns`.
fn row(experiment: &str, backend: Backend, variant: &str, metrics: &[&str], ns: u64) -> ResultRow {
    let mut samples = Samples::default();
    samples.record_ns(ns);
    let row = ResultRow::new(experiment, backend, variant);
    metrics.iter().fold(row, |row, name| row.metric(name, &samples))
}

fn x86() -> Host {
    Host { arch: "x86_64".to_owned(), hz: Some(250), ..Host::default() }
}

/// What is said of the rows of an experiment.
fn lines(experiment: &str, rows: &[ResultRow], host: &Host) -> Vec<String> {
    answer(experiments(), experiment, rows, host).lines
}

/// The one line that contains `what`.
fn line<'a>(told: &'a [String], what: &str) -> &'a str {
    let mut lines = told.iter().filter(|line| line.contains(what));
    let line = lines.next().unwrap_or_else(|| panic!("{what} is not in {told:#?}"));
    assert_eq!(lines.next(), None);
    line
}

#[test]
fn of_an_experiment_that_did_not_run_nothing_is_said() {
    for experiment in [
        "device-registration",
        "cache-enable",
        "slot-delete",
        "page-merge",
        "teardown",
        "dirty-log",
        "fork",
    ] {
        assert!(lines(experiment, &[], &x86()).is_empty(), "{experiment}");
        let skipped = [ResultRow::new(experiment, Backend::Kvm, "kernel").skipped("no /dev/kvm")];
        let told = lines(experiment, &skipped, &x86());
        assert!(told.iter().all(|line| !line.contains(" takes ")), "{told:#?}");
    }
    assert!(
        lines("unheard-of", &[row("unheard-of", Backend::Kvm, "kernel", &[], 1)], &x86())
            .is_empty()
    );
}

#[test]
fn slot_delete_tells_of_the_most_vcpus_that_each_backend_ran() {
    let metrics =
        ["delete_cpu", "until_freed", "sparse_delete_cpu", "longest_pass", "root_load_cpu"];
    let at = |backend, variant, vcpus: u32, ns| {
        row("slot-delete", backend, variant, &metrics, ns)
            .param("vcpus", vcpus)
            .param("zap", "all-roots")
            .param("memory", 1_u64 << 30)
            .metric("root_load_ahead", &Samples::of(Unit::Count, [76]))
    };
    let rows = [
        at(Backend::Machine, "write-locked", 4, 1),
        at(Backend::Machine, "write-locked", 128, 30_000),
        at(Backend::Machine, "read-locked", 128, 2_000),
        at(Backend::Machine, "mayfly", 4, 1),
        at(Backend::Machine, "mayfly", 128, 1_000),
        at(Backend::Kvm, "kernel", 4, 1),
        at(Backend::Kvm, "kernel", 16, 309_000),
        row("slot-delete", Backend::Kvm, "kernel", &[], 0).param("vcpus", 128).skipped("too many"),
    ];
    let told = lines("slot-delete", &rows, &x86());
    let here = "with 16 running vCPUs takes 309 us of the caller's CPU time";
    assert!(line(&told, "this host's KVM").contains(here), "{told:?}");
    assert!(
        line(&told, "Deleting").contains("256 MiB beside 1 GiB of other memory takes 30.0 us of")
    );
    assert!(
        line(&told, "up to v6.8").contains("With 128 vCPUs, a vCPU finds 76 others ahead of it")
    );
    assert!(line(&told, "Since v6.9").contains("2.00 us. Mayfly takes no lock: 1.00 us"));
    assert!(line(&told, "What to do").contains("KVM_X86_QUIRK_SLOT_ZAP_ALL"));
}

/// What is told of a memslot's deletion on such a host's KVM, where each way to zap was measured or not.
fn deletion(arch: &str, kernel: &str, zaps: &[&str]) -> Vec<String> {
    let metrics = ["sparse_delete_cpu", "longest_pass"];
    let rows: Vec<_> = zaps
        .iter()
        .map(|zap| {
            row("slot-delete", Backend::Kvm, "kernel", &metrics, 107_000)
                .param("vcpus", 4)
                .param("zap", *zap)
        })
        .collect();
    let host = Host { arch: arch.to_owned(), kernel: kernel.to_owned(), ..x86() };
    lines("slot-delete", &rows, &host)
}

#[test]
fn slot_delete_advises_nobody_to_run_what_runs_already() {
    let zaps = ["all-roots", "range"];
    for (kernel, shares) in [
        ("6.8.12-cloud", false),
        ("6.9.0", true),
        ("6.18.44-fc", true),
        ("5.10", false),
        ("", false),
    ] {
        let told = deletion("x86_64", kernel, &zaps);
        let advice = line(&told, "What to do");
        assert_eq!(advice.contains("this kernel shares the lock"), shares, "{kernel}: {advice}");
        assert_eq!(advice.contains("run v6.9 or later"), !shares, "{kernel}: {advice}");
        assert!(advice.contains("KVM_X86_QUIRK_SLOT_ZAP_ALL"), "{kernel}: {advice}");
        assert!(line(&told, "only the slot").starts_with("Where KVM zaps"), "{told:?}");
    }
}

#[test]
fn slot_delete_says_of_a_range_by_itself_what_was_deleted() {
    let told = deletion("x86_64", "6.18", &["range"]);
    assert!(told[0].contains("deleting a memslot of 2 MiB with 4 running vCPUs takes 107 us"));
    assert!(told[0].ends_with("This KVM zaps only the slot's range."), "{told:?}");
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn slot_delete_gives_arm64_no_advice_about_x86s_quirk() {
    let told = deletion("aarch64", "6.18", &["range"]);
    assert!(told[0].ends_with("This KVM zaps only the slot's range."), "{told:?}");
    assert!(told[1].starts_with("This host is not affected"), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("QUIRK")), "{told:?}");
}

#[test]
fn teardown_tells_of_the_largest_memory_that_each_backend_had() {
    let metrics = ["destroy", "reclaimed", "munmap"];
    let at = |backend, variant, gib: u64, mapping: &str, ns| {
        row("teardown", backend, variant, &metrics, ns)
            .param("memory", gib << 30)
            .param("mapping", mapping)
    };
    let rows = [
        row("teardown", Backend::Machine, "per-page", &["modelled_destroy"], 6_640_000_000)
            .param("memory", 64_u64 << 30)
            .param("mapping", "4KiB"),
        at(Backend::Machine, "elided", 64, "4KiB", 16_200_000),
        at(Backend::Machine, "mayfly", 64, "4KiB", 27_700),
        at(Backend::Kvm, "kernel", 1, "4KiB", 70_000_000),
        at(Backend::Kvm, "kernel", 1, "2MiB", 7_000_000),
    ];
    let told = lines("teardown", &rows, &x86());
    assert!(line(&told, "this host's KVM").contains("1 GiB in pages of 4 KiB takes 70.0 ms"));
    assert!(line(&told, "huge pages: ").contains("10.0x less"));
    assert!(line(&told, "What waits").contains("for 64 GiB 6.64 s (modelled from a part)"));
    assert!(line(&told, "Mayfly").contains("27.7 us"));
}

#[test]
fn cache_enable_tells_a_host_that_is_not_affected_so_and_what_a_shortcut_would_break() {
    let up = |variant, ns| {
        row("cache-enable", Backend::Machine, variant, &["bring_up"], ns)
            .param("memory", 2_u64 << 30)
            .param("mapping", "4KiB")
            .param("vcpus", 64)
    };
    let oracle = |variant, stale| {
        row("cache-enable", Backend::Machine, variant, &[], 0)
            .counter("scenarios", 19)
            .counter("scenarios_stale", stale)
    };
    let rows = [
        up("every-vcpu", 2_830_000_000),
        up("mayfly", 827_000),
        oracle("vcpu0-only", 11),
        oracle("first-vcpu", 13),
        oracle("mayfly", 0),
    ];
    let told = lines("cache-enable", &rows, &x86());
    assert!(told[0].starts_with("This host is not affected"), "{}", told[0]);
    assert!(line(&told, "What waits").contains("2.83 s for 64 vCPUs and 2 GiB"));
    assert!(line(&told, "quick and wrong").contains("in 11 and 13 of 19 scenarios"));
    assert!(line(&told, "Mayfly flushes").contains("827 us"));
}

#[test]
fn cache_enable_tells_an_arm64_host_by_its_processors_whether_it_is_affected() {
    let kvm = row("cache-enable", Backend::Kvm, "kernel", &["bring_up"], 2_470_000)
        .param("memory", 256_u64 << 20)
        .param("mapping", "4KiB")
        .param("vcpus", 64);
    let told = |fwb| {
        let host = Host { arch: "aarch64".to_owned(), kvm_fwb: fwb, ..Host::default() };
        lines("cache-enable", std::slice::from_ref(&kvm), &host)
    };
    let (without, with, unknown) = (told(Some(false)), told(Some(true)), told(None));
    assert!(without[0].starts_with("This host is affected"), "{without:?}");
    assert!(line(&without, "What to do").contains("or use processors with FEAT_S2FWB"));
    assert!(with[0].starts_with("This host is not affected"), "{with:?}");
    assert!(line(&with, "What to do").contains("nothing"), "{with:?}");
    assert!(unknown[0].starts_with("On this host's KVM"), "{unknown:?}");
    for told in [without, with, unknown] {
        assert!(
            told[0].contains("64 vCPUs of a VM of 256 MiB have their caches on after 2.47 ms"),
            "{told:?}"
        );
    }
}

#[test]
fn cache_enable_names_the_rows_that_it_speaks_of() {
    let up = |backend, variant, gib: u64, mapping: &str, vcpus: u64, ns| {
        row("cache-enable", backend, variant, &["bring_up"], ns)
            .param("memory", gib << 30)
            .param("mapping", mapping)
            .param("vcpus", vcpus)
    };
    let machine = |gib, mapping, vcpus, ns| {
        ["every-vcpu", "mayfly"]
            .map(|variant| up(Backend::Machine, variant, gib, mapping, vcpus, ns))
    };
    let kvm = |gib, mapping, vcpus, ns| up(Backend::Kvm, "kernel", gib, mapping, vcpus, ns);
    let of = |rows: &[ResultRow]| {
        let arm64 = Host { arch: "aarch64".to_owned(), ..Host::default() };
        let answer = answer(experiments(), "cache-enable", rows, &arm64);
        let by = ["memory", "mapping", "vcpus"].map(|name| answer.by.get(name).cloned());
        (answer.lines, by.map(|value| value.map(|value| value.to_string())))
    };
    let by = |gib: u64, mapping: &str, vcpus: u64| {
        [(gib << 30).to_string(), format!("\"{mapping}\""), vcpus.to_string()].map(Some)
    };

    // Of several numbers of vCPUs the most, and its time; in pages, though blocks are larger.
    let rows: Vec<_> = [machine(1, "4KiB", 2, 5_000), machine(1, "4KiB", 64, 7_000)]
        .into_iter()
        .chain([machine(128, "2MiB", 64, 9_000)])
        .flatten()
        .collect();
    let (told, found) = of(&rows);
    assert_eq!(found, by(1, "4KiB", 64));
    assert!(line(&told, "What waits").contains("7.00 us for 64 vCPUs and 1 GiB"), "{told:?}");

    // KVM's, and the machine's beside it of the same size, though it has a larger one.
    let with_kvm: Vec<_> =
        [rows, machine(4, "4KiB", 64, 11_000).into(), vec![kvm(1, "4KiB", 64, 13_000)]].concat();
    let (told, found) = of(&with_kvm);
    assert_eq!(found, by(1, "4KiB", 64));
    assert!(line(&told, "What waits").contains("7.00 us for 64 vCPUs and 1 GiB"), "{told:?}");

    // In blocks, where nothing was run in pages.
    assert_eq!(of(&machine(128, "2MiB", 64, 9_000)).1, by(128, "2MiB", 64));
}

#[test]
fn page_merge_says_why_a_kvm_that_was_asked_for_was_not_measured() {
    let skipped = |why| {
        let rows = [ResultRow::new("page-merge", Backend::Kvm, "kernel").skipped(why)];
        lines("page-merge", &rows, &x86()).remove(0)
    };
    let strangers =
        skipped("process 12 (cache) has mergeable memory; --ksm=shared has that merged as well");
    assert!(strangers.contains("not measured: process 12 (cache)"), "{strangers}");
    assert!(!strangers.contains("--ksm, as root"), "{strangers}");
    let left_alone = skipped("the host's page merger is left alone; --ksm has it run");
    assert!(left_alone.contains("--ksm, as root"), "{left_alone}");
}

#[test]
fn page_merge_tells_what_its_kvm_row_takes_where_it_was_not_asked_for() {
    let counted = |variant, faults| {
        let count = |count| Samples::of(Unit::Count, [count]);
        row("page-merge", Backend::Machine, variant, &[], 0)
            .metric("guest_faults", &count(faults))
            .metric("window_faults", &count(faults / 100))
            .metric("tlb_invalidations", &count(faults / 4))
            .metric("vm_cpu", &Samples::of(Unit::Nanoseconds, [faults * 1000]))
    };
    let rows =
        [counted("invalidate", 122_400), counted("change-pte", 97_000), counted("mayfly", 48)];
    let told = lines("page-merge", &rows, &x86());
    assert!(told[0].contains("--ksm"), "{}", told[0]);
    assert!(line(&told, "What waits").contains("guests take 122,400 faults, 1,224 of them while"));
    let cpu = line(&told, "CPU time");
    assert!(cpu.ends_with("122 ms with Linux's design, 48.0 us with Mayfly's."), "{cpu}");
    assert!(
        line(&told, "TLB invalidations").contains("30,600 with Linux's design, 12 with Mayfly's")
    );
}

#[test]
fn dirty_log_tells_of_the_most_vcpus_and_of_the_smallest_share_that_was_written() {
    let metrics = ["cycle_cpu", "start_cpu", "stall_longest", "called_stall_longest"];
    let at = |variant, vcpus: u32, written: u32, ns| {
        row("dirty-log", Backend::Machine, variant, &metrics, ns)
            .param("vcpus", vcpus)
            .param("written", written)
    };
    let rows = [
        at("write-protect", 16, 1, 900_000),
        at("initially-set", 16, 1, 700_000),
        at("ring", 16, 1, 800_000),
        at("write-locked", 16, 1, 600_000),
        at("mayfly", 16, 1, 60_000),
        at("mayfly", 16, 10, 1),
        at("mayfly", 1, 1, 2),
    ];
    let told = lines("dirty-log", &rows, &x86());
    assert!(line(&told, "switches a dirty log on").contains("16 vCPUs writing 1 % of the pages"));
    let cycle = line(&told, "whole cycle");
    assert!(
        cycle.contains("60.0 us") && cycle.contains("600 us") && cycle.contains("write-locked")
    );
    assert!(cycle.contains("10.0x"), "{cycle}");
    assert!(line(&told, "longest stall").contains("700 us while"), "{told:#?}");
    let alone = lines("dirty-log", &rows[4..], &x86());
    assert!(alone.iter().all(|line| line.starts_with("What to do")), "{alone:#?}");
}

/// A row of `fork` on KVM, of which each metric takes `ns`.
fn forked(variant: &str, ns: u64) -> ResultRow {
    let metrics = ["first_exit", "answer_500", "request_500", "reset_50", "parent_1000", "at_once"];
    row("fork", Backend::Kvm, variant, &metrics, ns)
        .param("forks", 100)
        .param("memory", 64_u64 << 20)
        .counter("forks_at_once", 100)
        .counter("own_kib_idle", if variant == "copy" { 64 << 10 } else { 0 })
        .counter("own_kib_50", 200)
}

#[test]
fn fork_says_what_each_design_costs_and_advises_what_is_cheaper_here() {
    let of = |ahead| {
        let rows = [
            forked("copy", 30_000_000),
            forked("map-private", 1_000_000),
            forked("userfault", 5_000_000),
            forked("prefetch", ahead),
        ];
        lines("fork", &rows, &x86())
    };
    let told = of(100_000);
    let here = "a fork of a guest of 64 MiB whose snapshot is mapped privately takes 1.00 ms until";
    assert!(line(&told, "this host's KVM").contains(here), "{told:#?}");
    assert!(line(&told, "What waits").contains("30.0 ms until its guest has run, 30.0x as long"));
    assert!(line(&told, "(userfaultfd)").contains("takes 5.00 ms, 5.00x as long"), "{told:#?}");
    assert!(line(&told, "a copy has").contains("200 KiB after 50 pages; a copy has 64 MiB"));
    assert!(line(&told, "What to do").contains("the request takes 10.0x less"), "{told:#?}");
    let dearer = of(1_200_000);
    assert!(line(&dearer, "What to do").contains("Writing pages ahead gains nothing here"));
    // Where userfaultfd is not allowed, nothing is said of it.
    let skipped = ResultRow::new("fork", Backend::Kvm, "userfault").skipped("not permitted");
    let rows = [forked("copy", 3), forked("map-private", 2), skipped];
    let told = lines("fork", &rows, &x86());
    assert!(told.iter().all(|line| !line.contains("(userfaultfd)")), "{told:#?}");
}

#[test]
fn fork_tells_of_the_most_forks_at_once_and_of_the_machine_beside_kvm_or_alone() {
    let on_machine = |variant: &str, ns| {
        let metrics = ["first_exit", "answer_500", "reset_50", "parent_1000"];
        row("fork", Backend::Machine, variant, &metrics, ns)
            .param("memory", 64_u64 << 20)
            .param("forks", 1)
    };
    let machine = [
        on_machine("copy", 9_000_000),
        on_machine("map-private", 300_000),
        on_machine("mayfly", 100_000),
    ];
    let told = lines("fork", &machine, &x86());
    let line_of = |told: &[String]| line(told, "On the software machine").to_owned();
    let ours = "of 64 MiB takes 100 us, 100 us and 100 us: until its guest has run";
    assert!(line_of(&told).contains(ours), "{told:#?}");
    let parent = "goes on loses 100 us, and 9.00 ms where it is copied";
    assert!(line_of(&told).contains(parent), "{told:#?}");

    let mut more = forked("map-private", 2_000_000).param("forks", 1000);
    more.counters.insert("forks_at_once".to_owned(), 900);
    let kvm = [forked("copy", 30_000_000), forked("map-private", 1_000_000), more];
    let both: Vec<_> = kvm.into_iter().chain(machine).collect();
    let told = lines("fork", &both, &x86());
    assert!(
        line(&told, "at once").contains("With up to 900 of them at once, one more takes 2.00 ms"),
        "{told:#?}"
    );
    assert!(line(&told, "loses 1.00 ms").contains("1,000 pages again"), "{told:#?}");
    line_of(&told);
}
