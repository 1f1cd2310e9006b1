//! What `mayfly run` takes.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use mayfly_beside_kvm::{Processor, guests};
use mayfly_lab::{BackendChoice, Bound, Ksm, Order, Params, Selection, Size, Zap};
use mayfly_lifecycle_steps::{Architecture, Course, times};
use mayfly_record::{Backend, Goal};
use mayfly_report::Threshold;

use crate::failure::Failure;

/// Run experiments and print what they measured
///
/// Each experiment runs the same work under several variants: what Linux did, what was proposed, and what Mayfly does. The
/// report says what waits, for how long, and what to do about it, and shows the medians. With --full, it also shows the
/// percentiles of every metric, and the ratio of each variant's median to Mayfly's.
#[derive(ClapArgs)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// The experiments to run; separate several by spaces or commas. Without a name, all of them run
    #[arg(value_name = "EXPERIMENT", value_delimiter = ',')]
    experiments: Vec<String>,

    /// Where to run: `machine` is the software machine, `kvm` is the KVM of the running kernel, and `auto` is the machine and,
    /// if /dev/kvm can be opened, KVM. `metal` starts a machine in QEMU, once with Mayfly on it and twice with Linux
    /// and its KVM, and counts the instructions of the same VM lifecycle on all; with the experiment dirty-log, those of a
    /// dirty log; with fork, those of forks; with devices, those of Linux guests and their devices, on KVM under QEMU
    #[arg(long, value_name = "auto|machine|kvm|metal", default_value = "auto")]
    backend: BackendChoice,

    /// Run only this variant. The option may be repeated, or take several names separated by commas
    #[arg(long = "variant", value_name = "NAME", value_delimiter = ',')]
    variants: Vec<String>,

    /// Write the record of the run to FILE as JSON. With - or /dev/stdout, the record goes to standard output and the report
    /// to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Repeat on this host the run whose record is FILE: the same experiments, variants and parameters. Of the other options,
    /// only --json, --full, --fail-if, --quiet and --dry-run have an effect
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiments", "backend", "variants", "Parameters"])]
    pub(crate) like: Option<PathBuf>,

    /// The arguments as given; with --like, those of the run that is repeated
    #[arg(skip)]
    pub(crate) arguments: Vec<String>,

    /// Print no announcement and no progress; with --json -, print no report either
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Show every metric, counter and check, and not only the conclusions and the medians
    #[arg(long)]
    pub(crate) full: bool,

    /// Exit with 1 if this holds for a figure. THRESHOLD is NAMES > NUMBER, as in
    /// 'device-registration.kvm.first_memslot.p50 > 1ms' or 'ratio > 1.1'. NAMES is
    /// EXPERIMENT.BACKEND.VARIANT.METRIC.STATISTIC, of which any may be left out. The option may be repeated
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    pub(crate) fail_if: Vec<Threshold>,

    /// Repeat each experiment until the medians are known this well: the 95 % interval of every metric in the short report
    /// extends no further than this share of the median to either side. Stops after --time, or after 10 minutes without that option
    #[arg(long, value_name = "SHARE", value_parser = precision, allow_negative_numbers = true)]
    precision: Option<f64>,

    /// Repeat the experiments for at most this long in all, as in 90s, 10m or 1h. Without --precision, all of the time is
    /// used. Each experiment runs at least once, even if that takes longer
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    time: Option<f64>,

    /// Run nothing. Print what would run, how long it takes, how much memory it needs, and what it changes on this host
    #[arg(long = "dry-run")]
    pub(crate) plan_only: bool,

    /// With --backend metal: the processor of the machine, max, neoverse-n1 or cortex-a72, of arm64; without a name, all of
    /// them are used. Or EPYC, of x86-64, where there is no other experiment than lives
    #[arg(long = "processor", value_name = "NAME", value_delimiter = ',')]
    processors: Vec<Processor>,

    /// With --backend metal: the directory in which `make metal-run` has put the files to boot
    #[arg(long, value_name = "DIRECTORY", default_value = "target/metal")]
    machine_files: PathBuf,

    #[command(flatten)]
    params: Parameters,
}

const RUN_EXAMPLES: &str = "\
Examples:
  mayfly run
  mayfly run --backend kvm --vms 50
  mayfly run --variant call-srcu,mayfly --order devices-first --hz 100
  mayfly run --precision 5% --time 20m
  mayfly run --quiet --json - | jq '.results[].metrics'";

/// The names are those of [`mayfly_lab::Params`]; an experiment's defaults are added to the help.
#[derive(ClapArgs)]
#[command(next_help_heading = "Parameters of experiments")]
struct Parameters {
    /// The number of VMs; the experiment runs them one after another, or all at once
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::VMS.parse(text), allow_negative_numbers = true)]
    vms: Option<u32>,

    /// The number of devices registered in each VM
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::DEVICES.parse(text), allow_negative_numbers = true)]
    devices: Option<u32>,

    /// The number of vCPUs of each VM. The option may be repeated, or take several numbers separated by commas: the
    /// experiment runs with each of them
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = |text: &str| Bound::VCPUS.parse(text),
        allow_negative_numbers = true)]
    vcpus: Vec<u32>,

    /// Ticks a second of the kernel that the software machine models; KVM runs with the host's
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::HZ.parse(text), allow_negative_numbers = true)]
    hz: Option<u32>,

    /// What a VM gets first: devices-first, vcpus-first or memory-first. The option may be repeated, or take several values
    /// separated by commas
    #[arg(long = Order::PARAM, value_name = "ORDER", value_delimiter = ',')]
    orders: Vec<Order>,

    /// The number of rounds: how often each variant does the measured work
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::ROUNDS.parse(text), allow_negative_numbers = true)]
    rounds: Option<u32>,

    /// The memory of each VM, such as 512MiB, 1g or 1.5GiB. The option may be repeated, or take several sizes separated by
    /// commas
    #[arg(long = Size::PARAM, value_name = "SIZE", value_delimiter = ',', allow_negative_numbers = true)]
    memory: Vec<Size>,

    /// What the deletion of a memslot zaps: all-roots or range. The option may be repeated, or take both values separated by
    /// a comma
    #[arg(long = Zap::PARAM, value_name = "WHAT", value_delimiter = ',')]
    zaps: Vec<Zap>,

    /// The number of consecutive pages that the software machine's page merger merges in one change, at most
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::PAGES_A_CHANGE.parse(text),
        allow_negative_numbers = true)]
    pages_a_change: Option<u32>,

    /// The share of its memory that the guest writes to, in percent. The option may be repeated, or take several numbers
    /// separated by commas: the experiment runs with each of them
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = |text: &str| Bound::WRITTEN.parse(text),
        allow_negative_numbers = true)]
    written: Vec<u32>,

    /// How many forks there are, one after the other and at once. The option may be repeated, or take several numbers
    /// separated by commas: the experiment runs with each of them
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = |text: &str| Bound::FORKS.parse(text),
        allow_negative_numbers = true)]
    forks: Vec<u32>,

    /// Use this host's page merger (KSM). This requires root; the run changes KSM's settings and restores them. With =alone,
    /// the default of --ksm, the run leaves KSM alone if another process has mergeable memory. With =shared, the run uses KSM even then
    #[arg(long = Ksm::PARAM, value_name = "alone|shared", num_args = 0..=1, require_equals = true,
        default_missing_value = Ksm::Alone.name())]
    ksm: Option<Ksm>,
}

impl Run {
    /// The same run, but announced, shown and kept as `other` says.
    pub(crate) fn told_as(self, other: &Self) -> Self {
        let (json, quiet, plan_only) = (other.json.clone(), other.quiet, other.plan_only);
        let fail_if = other.fail_if.clone();
        Self { json, quiet, plan_only, full: other.full, fail_if, like: None, ..self }
    }

    /// What to run on machines of QEMU's, if that is asked for. What else was said is to mean something there.
    pub(crate) fn on_metal(&self) -> Result<Option<OnMetal>, Failure> {
        if self.backend != BackendChoice::Only(Backend::Metal) {
            return if self.processors.is_empty() {
                Ok(None)
            } else {
                Err(Failure::usage("--processor requires --backend metal"))
            };
        }
        let mut experiment = Experiment::Course(Course::Lives);
        for (name, number) in self.experiments.iter().zip(0..) {
            let accepted = Experiment::ALL.map(Experiment::name).join(", ");
            experiment = Experiment::named(name).ok_or_else(|| {
                Failure::usage(format!(
                    "no experiment is named '{name}' on metal: accepted are {accepted}"
                ))
            })?;
            if number > 0 {
                return Err(Failure::usage(format!("on metal, one experiment runs: {accepted}")));
            }
        }
        let rounds = self.params.rounds;
        let selection = self.selection();
        let others = Params { rounds: None, ..selection.params.clone() };
        if others.named().next().is_some()
            || !selection.goal.is_once()
            || !self.variants.is_empty()
            || !self.fail_if.is_empty()
        {
            let accepted = "--rounds, --processor, --machine-files, --json, --quiet and --dry-run";
            return Err(Failure::usage(format!("with --backend metal, accepted are {accepted}")));
        }
        let architecture =
            self.processors.first().map_or(Architecture::Arm64, |one| one.architecture());
        if self.processors.iter().any(|one| one.architecture() != architecture) {
            return Err(Failure::usage("processors of one architecture can be measured at a time"));
        }
        let has = match experiment {
            Experiment::Course(course) => architecture.has(course),
            Experiment::Devices => architecture == Architecture::Arm64,
        };
        if !has {
            let (name, here) = (experiment.name(), architecture.name());
            return Err(Failure::usage(format!("{name} is not counted on {here}")));
        }
        let is_meant = |one: &Processor| {
            let is_named = self.processors.is_empty() || self.processors.contains(one);
            is_named && one.architecture() == architecture
        };
        let processors = Processor::ALL.into_iter().filter(is_meant).collect();
        if rounds.is_some() && experiment == Experiment::Devices {
            return Err(Failure::usage("devices are counted once: --rounds has no effect"));
        }
        let rounds = rounds.unwrap_or(experiment.rounds());
        if rounds > times::MOST_ROUNDS {
            let most = times::MOST_ROUNDS;
            return Err(Failure::usage(format!(
                "with --backend metal, --rounds is {most} at most"
            )));
        }
        let files = self.machine_files.clone();
        Ok(Some(OnMetal { experiment, architecture, processors, rounds, files }))
    }

    /// Whether something was asked for by its name, and not whatever there is.
    pub(crate) fn is_by_name(&self) -> bool {
        !self.experiments.is_empty()
            || !self.variants.is_empty()
            || self.backend != BackendChoice::Auto
    }

    /// What to run.
    pub(crate) fn selection(&self) -> Selection {
        let Parameters {
            vms,
            devices,
            ref vcpus,
            hz,
            ref orders,
            rounds,
            ref memory,
            ref zaps,
            pages_a_change,
            ref written,
            ref forks,
            ksm,
        } = self.params;
        Selection {
            experiments: self.experiments.clone(),
            backend: self.backend,
            variants: self.variants.clone(),
            params: Params {
                vms,
                devices,
                vcpus: vcpus.clone(),
                hz,
                orders: orders.clone(),
                rounds,
                memory: memory.clone(),
                zaps: zaps.clone(),
                pages_a_change,
                written: written.clone(),
                forks: forks.clone(),
                ksm,
            },
            goal: Goal { precision: self.precision, seconds: self.time },
        }
    }
}

/// An experiment on machines of QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Experiment {
    /// The steps of a bare guest.
    Course(Course),
    /// Linux guests and their devices.
    Devices,
}

impl Experiment {
    const ALL: [Self; 4] = [
        Self::Course(Course::Lives),
        Self::Course(Course::DirtyLog),
        Self::Course(Course::Fork),
        Self::Devices,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Course(course) => course.name(),
            Self::Devices => guests::EXPERIMENT,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name() == name)
    }

    const fn rounds(self) -> u32 {
        match self {
            Self::Course(course) => course.rounds(),
            Self::Devices => 1,
        }
    }
}

/// What is run on machines of QEMU's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OnMetal {
    pub(crate) experiment: Experiment,
    pub(crate) architecture: Architecture,
    /// All of that architecture.
    pub(crate) processors: Vec<Processor>,
    pub(crate) rounds: u32,
    /// Where what is booted is.
    pub(crate) files: PathBuf,
}

/// A share of a median, as `5%` or `0.05`.
fn precision(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = plain(number).map(|number| number / scale);
    let accepted = share.filter(|share| (0.001..=1.0).contains(share));
    accepted.ok_or_else(|| "accepted are 0.1% to 100%, or 0.001 to 1".to_owned())
}

/// A time in seconds, as `90s`, `10m` or `1h`.
fn seconds(text: &str) -> Result<f64, String> {
    let units = [("min", 60.0), ("m", 60.0), ("h", 3600.0), ("s", 1.0)];
    let in_unit =
        |(unit, scale): (&str, f64)| Some(plain(text.strip_suffix(unit)?.trim_end())? * scale);
    let accepted = units.into_iter().find_map(in_unit).filter(|s| (1.0..=604_800.0).contains(s));
    accepted.ok_or_else(|| "accepted are 1s to 168h, as in 90s, 10m or 1h".to_owned())
}

/// A number in digits; Rust's own parser knows `inf`, `nan` and exponents, too.
fn plain(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn options_arrive_in_the_selection() {
        let line = "mayfly run one two --backend kvm --variant a,b --variant c --hz 100 \
                    --order memory-first,vcpus-first --vcpus 4,16 --vcpus 2 --memory 1GiB,512M \
                    --zap range --rounds 3 --pages-a-change 8 --written 1,10 --forks 1,1000 --ksm=shared \
                    --precision 5% --time 2m";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Run(run) = args.command else { panic!("not a run") };
        let selection = run.selection();
        assert_eq!(selection.experiments, ["one", "two"]);
        assert_eq!(selection.backend, "kvm".parse().unwrap());
        assert_eq!(selection.variants, ["a", "b", "c"]);
        assert_eq!((selection.params.hz, selection.params.vms), (Some(100), None));
        assert_eq!(selection.params.orders, [Order::MemoryFirst, Order::VcpusFirst]);
        assert_eq!(selection.params.vcpus, [4, 16, 2]);
        let sizes: Vec<_> = selection.params.memory.iter().map(ToString::to_string).collect();
        assert_eq!(sizes, ["1 GiB", "512 MiB"]);
        assert_eq!((selection.params.zaps, selection.params.rounds), (vec![Zap::Range], Some(3)));
        assert_eq!(selection.params.pages_a_change, Some(8));
        assert_eq!(selection.params.written, [1, 10]);
        assert_eq!(selection.params.forks, [1, 1000]);
        assert_eq!(selection.params.ksm, Some(Ksm::Shared));
        assert_eq!(selection.goal, Goal { precision: Some(0.05), seconds: Some(120.0) });
    }

    #[test]
    fn a_precision_and_a_time_are_read_as_people_write_them_and_nothing_else_is() {
        for (text, share) in
            [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("0.1%", 0.001), ("2.5%", 0.025)]
        {
            assert!((precision(text).unwrap() - share).abs() < 1e-12, "{text}");
        }
        for text in ["", "%", "0", "0%", "101%", "5", "-5%", "nan", "inf%", "5 percent", "1e-2"] {
            assert!(precision(text).is_err(), "{text}");
        }
        for (text, wanted) in
            [("90s", 90.0), ("10m", 600.0), ("10min", 600.0), ("1.5h", 5400.0), ("1 s", 1.0)]
        {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["", "s", "90", "0s", "-1s", "infs", "nanh", "200h", "10ms", "1e3s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_merger_is_left_alone_unless_it_is_asked_for_and_takes_no_word_for_a_value() {
        for (line, asked) in [
            ("mayfly run page-merge", None),
            ("mayfly run --ksm page-merge", Some(Ksm::Alone)),
            ("mayfly run page-merge --ksm=shared", Some(Ksm::Shared)),
        ] {
            let args = Args::try_parse_from(line.split_whitespace()).unwrap();
            let Command::Run(run) = args.command else { panic!("not a run") };
            let selection = run.selection();
            assert_eq!(
                (selection.params.ksm, &selection.experiments[..]),
                (asked, &["page-merge".to_owned()][..])
            );
        }
    }
}
