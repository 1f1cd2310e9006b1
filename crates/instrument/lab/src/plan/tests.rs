use std::cell::RefCell;

use mayfly_record::{Samples, Unit};

use super::*;
use crate::course::{Failure, Outcome};
use crate::experiment::{Metric, Param};
use crate::needs::Needs;
use crate::params::{Bound, Order};
use crate::progress::Silent;
use crate::undo::Undo;

/// Records what it was asked to run.
struct Probe {
    name: &'static str,
    variants: &'static [Variant],
}

const fn variant(backend: Backend, name: &'static str) -> Variant {
    Variant { backend, name, summary: "one way" }
}

const WIDE: Probe = Probe {
    name: "wide",
    variants: &[
        variant(Backend::Machine, "slow"),
        variant(Backend::Machine, "mayfly"),
        variant(Backend::Kvm, "kernel"),
    ],
};
/// Its variants measure something, and `slow` begins with less than the other.
const UNEVEN: Probe = Probe {
    name: "uneven",
    variants: &[variant(Backend::Machine, "slow"), variant(Backend::Machine, "mayfly")],
};
const LUCKY: Probe = Probe { name: "lucky", variants: &[variant(Backend::Machine, "mayfly")] };
const NARROW: Probe = Probe { name: "narrow", variants: &[variant(Backend::Machine, "mayfly")] };

impl Experiment for Probe {
    fn name(&self) -> &'static str {
        self.name
    }
    fn summary(&self) -> &'static str {
        "a probe"
    }
    fn about(&self) -> &'static str {
        "A probe."
    }
    fn variants(&self) -> &'static [Variant] {
        self.variants
    }
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }
    fn params(&self) -> &'static [Param] {
        &[Param { name: "vms", default: "7", summary: "VMs; 13 fail, and 14 panic" }]
    }
    fn needs(&self, request: &Request<'_>) -> Needs {
        let vms = request.params.vms.unwrap_or(7);
        // On KVM they come one after the other.
        let vms = if request.count_on(Backend::Machine) > 0 { vms } else { 1 };
        let bytes = u64::from(vms) << 30;
        let what_for = format!("{vms} VMs");
        Needs { memory: bytes, space: bytes, what_for, ..Needs::default() }
    }
    fn run(
        &self,
        request: &Request<'_>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Vec<ResultRow>> {
        let vms = request.params.vms.unwrap_or(7);
        let lucky = self.name == "lucky";
        anyhow::ensure!(lucky || vms != 13, "no luck");
        assert!(lucky || vms != 14, "no luck at all");
        progress.begin(self.name, u64::from(vms));
        let rows = request
            .variants
            .iter()
            .map(|v| {
                progress.step();
                let row = ResultRow::new(self.name, v.backend, v.name)
                    .param("vms", vms)
                    .param("hz", request.hz());
                if self.name != "uneven" {
                    return row;
                }
                let tables = if v.name == "slow" { 7 } else { 652 };
                row.began("deletion", [("tables".to_owned(), tables)].into())
                    .metric("time", &Samples::of(Unit::Nanoseconds, [7]))
            })
            .collect();
        progress.finish();
        Ok(rows)
    }
}

fn host(kvm: bool) -> Host {
    let kvm_missing = (!kvm).then(|| "there is no /dev/kvm".to_owned());
    let arch = "x86_64".to_owned();
    Host { arch, kvm, kvm_missing, hz: Some(300), ..Host::default() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn run_on(host: &Host, selection: &Selection) -> Result<Vec<ResultRow>, Error> {
    let course = Course::default();
    Plan::within(Limits::default(), &[&WIDE, &NARROW], selection, host)?.run(&course, &mut Silent);
    let Outcome { rows, failures, under_way, .. } = course.outcome();
    assert_eq!((failures, under_way), (Vec::new(), None));
    Ok(rows)
}

/// The rows as `experiment/backend/variant`, a skipped one in parentheses.
fn ran(rows: &[ResultRow]) -> Vec<String> {
    let name = |row: &ResultRow| {
        let name = format!("{}/{}/{}", row.experiment, row.backend, row.variant);
        if row.skipped.is_some() { format!("({name})") } else { name }
    };
    rows.iter().map(name).collect()
}

#[test]
fn a_row_that_began_with_less_than_another_has_no_figures_in_the_outcome_and_a_check_that_failed() {
    let (host, course) = (host(false), Course::default());
    let plan = Plan::within(Limits::default(), &[&UNEVEN], &Selection::default(), &host).unwrap();
    plan.run(&course, &mut Silent);
    let Outcome { rows, failures, .. } = course.outcome();
    let told = rows.iter().map(|row| (row.metrics.len(), row.checks[0].ok));
    assert_eq!(told.collect::<Vec<_>>(), [(0, false), (1, true)]);
    assert!(rows[0].checks[0].detail.contains("tables 652"), "{:?}", rows[0].checks);
    assert!(failures.is_empty());
}

#[test]
fn nothing_selected_runs_everything_there_is() {
    let rows = run_on(&host(true), &Selection::default()).unwrap();
    assert_eq!(
        ran(&rows),
        ["wide/machine/slow", "wide/machine/mayfly", "wide/kvm/kernel", "narrow/machine/mayfly"]
    );
    assert!(rows.iter().all(|row| row.params["vms"] == 7 && row.params["hz"] == 300));
}

#[test]
fn without_kvm_its_variants_are_skipped_with_the_reason() {
    let rows = run_on(&host(false), &Selection::default()).unwrap();
    assert_eq!(
        ran(&rows),
        ["wide/machine/slow", "wide/machine/mayfly", "(wide/kvm/kernel)", "narrow/machine/mayfly"]
    );
    assert_eq!(rows[2].skipped.as_deref(), Some("there is no /dev/kvm"));
}

#[test]
fn on_another_architecture_variants_on_kvm_say_whose_their_guest_is() {
    let riscv64 = Host { arch: "riscv64".to_owned(), ..host(true) };
    for backend in [BackendChoice::Auto, BackendChoice::Only(Backend::Kvm)] {
        let rows = run_on(&riscv64, &Selection { backend, ..Selection::default() }).unwrap();
        let row = rows.iter().find(|row| row.backend == Backend::Kvm).unwrap();
        let why = "the guests for KVM are for x86-64 and arm64, and this host is riscv64";
        assert_eq!(row.skipped.as_deref(), Some(why));
    }
}

#[test]
fn kvm_asked_for_by_name_where_there_is_none_is_skipped_with_the_reason() {
    let selection =
        Selection { backend: BackendChoice::Only(Backend::Kvm), ..Selection::default() };
    let rows = run_on(&host(false), &selection).unwrap();
    assert_eq!(ran(&rows), ["(wide/kvm/kernel)"]);
    assert_eq!(rows[0].skipped.as_deref(), Some("there is no /dev/kvm"));
    assert_eq!(ran(&run_on(&host(true), &selection).unwrap()), ["wide/kvm/kernel"]);
}

#[test]
fn what_there_is_no_memory_for_is_skipped_with_what_was_wanted_and_the_rest_is_run() {
    let limits = Limits { host: Some(5 << 30), ..Limits::default() };
    let (host, course) = (host(true), Course::default());
    let plan = Plan::within(limits, &[&WIDE, &NARROW], &Selection::default(), &host).unwrap();
    let planned: Vec<_> = plan.parts().collect();
    assert_eq!((planned[0].variants.len(), planned[0].skipped.len()), (1, 2));
    assert_eq!((planned[1].variants.len(), planned[1].needs), (0, &Needs::default()));
    plan.run(&course, &mut Silent);
    let rows = course.outcome().rows;
    let expected = [
        "wide/kvm/kernel",
        "(wide/machine/slow)",
        "(wide/machine/mayfly)",
        "(narrow/machine/mayfly)",
    ];
    assert_eq!(ran(&rows), expected);
    let why = "7 GiB of memory for 7 VMs, 5 GiB available on the host";
    assert_eq!(rows[1].skipped.as_deref(), Some(why));
    let params = Params { vms: Some(5), ..Params::default() };
    let selection = Selection { params, ..Selection::default() };
    let plan = Plan::within(limits, &[&WIDE, &NARROW], &selection, &host).unwrap();
    assert!(plan.parts().all(|part| part.skipped.is_empty()));
    assert_eq!(plan.needs().memory, 5 << 30);
}

#[test]
fn what_runs_on_kvm_is_held_against_the_same_limits() {
    let host = host(true);
    let why = |limits| {
        let plan = Plan::within(limits, &[&WIDE], &Selection::default(), &host).unwrap();
        let part = plan.parts().next().unwrap();
        let on_kvm = |(variant, _): &&(&Variant, String)| variant.backend == Backend::Kvm;
        part.skipped.iter().find(on_kvm).map(|(_, why)| why.clone())
    };
    assert_eq!(why(Limits { cgroup: Some(1 << 30), ..Limits::default() }), None);
    let cgroup = Limits { cgroup: Some(1 << 29), ..Limits::default() };
    let left = "1 GiB of memory for 1 VMs, 512 MiB left by the cgroup's limit";
    assert_eq!(why(cgroup).as_deref(), Some(left));
    let allowed = "1 GiB of address space for 1 VMs, 512 MiB allowed (RLIMIT_AS, RLIMIT_DATA)";
    assert_eq!(why(Limits { space: Some(1 << 29), ..cgroup }).as_deref(), Some(allowed));
}

#[test]
fn a_variant_that_only_one_experiment_has_leaves_the_other_out() {
    let selection = Selection { variants: names(&["slow"]), ..Selection::default() };
    assert_eq!(ran(&run_on(&host(false), &selection).unwrap()), ["wide/machine/slow"]);
}

#[test]
fn unknown_names_are_refused_with_those_that_exist() {
    let refused = |selection| {
        let error = run_on(&host(true), &selection).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        refused(Selection { experiments: names(&["wide", "wode"]), ..Selection::default() }),
        "no experiment is named 'wode' (did you mean 'wide'?): accepted are wide, narrow"
    );
    assert_eq!(
        refused(Selection { variants: names(&["mayfly", "fast"]), ..Selection::default() }),
        "no variant is named 'fast' here: accepted are slow, mayfly, kernel of wide; mayfly of narrow"
    );
    assert_eq!(
        refused(Selection {
            variants: names(&["kernel"]),
            backend: BackendChoice::Only(Backend::Machine),
            ..Selection::default()
        }),
        "no variant is named 'kernel' here: accepted are slow, mayfly of wide; mayfly of narrow"
    );
}

#[test]
fn a_parameter_that_nothing_reads_is_refused() {
    let params = Params { orders: vec![Order::MemoryFirst], ..Params::default() };
    let error = run_on(&host(true), &Selection { params, ..Selection::default() }).unwrap_err();
    assert_eq!(error.to_string(), "--order is not a parameter of wide, narrow: leave it out");
}

#[test]
fn an_experiment_that_fails_or_panics_takes_nothing_from_the_others() {
    for (vms, why) in [(13, "no luck"), (14, "panicked: no luck at all")] {
        let params = Params { vms: Some(vms), ..Params::default() };
        let selection = Selection { params, ..Selection::default() };
        let (course, host) = (Course::default(), host(true));
        let available: [&dyn Experiment; 3] = [&WIDE, &LUCKY, &NARROW];
        Plan::within(Limits::default(), &available, &selection, &host)
            .unwrap()
            .run(&course, &mut Silent);
        let outcome = course.outcome();
        assert_eq!(ran(&outcome.rows), ["lucky/machine/mayfly"]);
        let failure = |experiment| Failure { experiment, why: why.to_owned() };
        assert_eq!(outcome.failures, [failure("wide"), failure("narrow")]);
        assert_eq!(outcome.partial().unwrap(), format!("wide: {why}; narrow: {why}"));
    }
}

#[test]
fn what_is_done_can_be_had_while_the_next_experiment_runs() {
    /// Looks at the run that it is a part of.
    #[derive(Default)]
    struct Looks(Course, Vec<Outcome>);
    impl Progress for Looks {
        fn begin(&mut self, _: &str, _: u64) {
            self.1.push(self.0.outcome());
        }
        fn step(&mut self) {}
        fn finish(&mut self) {}
    }
    let (mut looks, host) = (Looks::default(), host(true));
    let course = looks.0.clone();
    let plan =
        Plan::within(Limits::default(), &[&WIDE, &NARROW], &Selection::default(), &host).unwrap();
    plan.run(&course, &mut looks);
    let [first, second] = &looks.1[..] else { panic!("{:?}", looks.1) };
    assert_eq!((first.rows.len(), first.under_way), (0, Some("wide")));
    assert_eq!((second.rows.len(), second.under_way), (3, Some("narrow")));
    assert_eq!(second.partial().unwrap(), "narrow was not finished");
    assert_eq!((course.outcome().rows.len(), course.outcome().partial()), (4, None));
}

#[test]
fn the_tick_is_the_users_then_the_hosts_then_the_usual_one() {
    let hz = |set: Option<u32>, of_host: Option<u32>| {
        let (params, host) =
            (Params { hz: set, ..Params::default() }, Host { hz: of_host, ..host(false) });
        Request { variants: &[], params: &params, host: &host, undo: &Undo::default(), pass: 0 }
            .hz()
    };
    assert_eq!([hz(Some(100), Some(1000)), hz(None, Some(1000)), hz(None, None)], [100, 1000, 250]);
    assert_eq!(Bound::HZ.parse("100"), Ok(100));
}

#[test]
fn progress_is_told_of_every_step() {
    #[derive(Default)]
    struct Told(RefCell<Vec<String>>);
    impl Progress for Told {
        fn begin(&mut self, what: &str, steps: u64) {
            self.0.borrow_mut().push(format!("{what} {steps}"));
        }
        fn step(&mut self) {
            self.0.borrow_mut().push("step".to_owned());
        }
        fn finish(&mut self) {
            self.0.borrow_mut().push("over".to_owned());
        }
    }
    let host = host(false);
    let selection = Selection { experiments: names(&["narrow"]), ..Selection::default() };
    let mut told = Told::default();
    Plan::within(Limits::default(), &[&WIDE, &NARROW], &selection, &host)
        .unwrap()
        .run(&Course::default(), &mut told);
    assert_eq!(told.0.take(), ["narrow 7", "step", "over", "over"]);
}
