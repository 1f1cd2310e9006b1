//! README and docs have the tables that `make figures` writes, and it can write them.

use std::fs;
use std::path::{Path, PathBuf};

use mayfly_lab::{Course, Order, Params, Plan, Selection, Silent, Size, experiments};
use mayfly_record::{Backend, Conditions, Host, Record};
use mayfly_report::PICTURED;
use mayfly_result_tables::{
    HOST, README, Runs, RunsError, SUMMARY, Table, check, check_all, check_summary, commands,
    replace, summary, tables, write,
};

const RESULTS: &str = include_str!("../../../../docs/results.md");
const README_TEXT: &str = include_str!("../../../../README.md");

/// Experiments whose figures are on their own pages, with their commands: no table, summary or picture has them.
const ON_THEIR_OWN_PAGES: [&str; 2] = ["dirty-log", "fork"];

/// The names of the experiments that the page of results has.
fn shown() -> Vec<&'static str> {
    let names = experiments().iter().map(|experiment| experiment.name());
    names.filter(|name| !ON_THEIR_OWN_PAGES.contains(name)).collect()
}

/// The tables of the page of results.
fn results() -> Vec<Table> {
    tables().into_iter().filter(|table| table.document == "docs/results.md").collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

#[test]
fn every_table_of_every_document_has_the_form_in_which_it_is_written() {
    let root = root();
    let tables = tables();
    let documents: Vec<&[Table]> =
        tables.chunk_by(|one, other| one.document == other.document).collect();
    assert_eq!(documents.len(), 3);
    for of_one in documents {
        let name = of_one[0].document;
        let document = fs::read_to_string(root.join(name)).unwrap();
        check(&document, of_one).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn each_experiment_is_measured_by_one_command() {
    let names: Vec<&str> =
        commands().into_iter().map(|arguments| arguments.split(' ').next().unwrap()).collect();
    assert_eq!(names, shown());
}

#[test]
fn readme_says_where_the_figures_are_that_the_page_of_results_lacks() {
    let count = shown().len() + ON_THEIR_OWN_PAGES.len();
    assert_eq!(count, experiments().len(), "{ON_THEIR_OWN_PAGES:?} are experiments");
    let links = ON_THEIR_OWN_PAGES.map(|name| format!("[`{name}`](docs/{name}.md)"));
    assert!(README_TEXT.contains(&format!("{} have their figures there", links.join(" and "))));
    for name in ON_THEIR_OWN_PAGES {
        let page = fs::read_to_string(root().join(format!("docs/{name}.md"))).unwrap();
        assert!(page.contains(&format!("mayfly run {name}")), "the command is missing");
    }
}

#[test]
fn the_page_of_results_has_no_other_tables_and_readme_has_one() {
    assert_eq!(RESULTS.matches("\n| --- ").count(), results().len(), "a table without markers");
    let shown = README_TEXT.split("\n## Results\n").nth(1).unwrap().split("\n## ").next().unwrap();
    assert_eq!(shown.matches("\n| --- ").count(), 1, "a table without markers");
    assert!(shown.contains("<!-- figures: summary -->"));
}

#[test]
fn readme_quotes_the_page_of_results() {
    check_summary(README_TEXT, RESULTS).unwrap();
    let quoted = summary(RESULTS).unwrap();
    assert_eq!(quoted.lines().count(), 2 + shown().len(), "a line for each experiment");
    for name in shown() {
        assert!(quoted.contains(&format!("| [`{name}`](docs/{name}.md) |")));
    }
    let edited = README_TEXT.replacen("this host's KVM | Linux's", "KVM | Linux's", 1);
    assert!(check_summary(&edited, RESULTS).unwrap_err().to_string().contains("in place of"));
    let without = RESULTS.replacen("| then the first memslot |", "| then another |", 1);
    let said = summary(&without).unwrap_err().to_string();
    assert!(said.contains("starting-a-vm") && said.contains("then the first memslot"), "{said}");
}

/// Counters in tables, which no experiment describes as metrics.
const COUNTERS: [&str; 4] = ["scenarios", "scenarios_stale", "tlbi_ipa", "tlbi_vmid"];

#[test]
fn whatever_a_table_names_is_a_variant_and_a_metric_or_a_counter() {
    for table in tables() {
        let experiment = experiments().iter().find(|e| e.name() == table.experiment()).unwrap();
        for column in &table.columns {
            let known = |backend, name| {
                experiment.variants().iter().any(|v| (v.backend, v.name) == (backend, name))
            };
            assert!(known(column.backend, column.variant), "{} of {}", column.variant, table.name);
        }
        let metrics = experiment.describe().metrics;
        for name in table.lines.iter().flat_map(|line| &line.names) {
            let is_known = COUNTERS.contains(name) || metrics.iter().any(|of| of.name == *name);
            assert!(is_known, "{name} of {}", table.name);
        }
    }
}

#[test]
fn whatever_the_picture_names_is_a_variant_a_metric_and_a_parameter_and_no_experiment_is_missing() {
    let mut pictured = PICTURED.map(|pictured| pictured.experiment);
    let mut known = shown();
    pictured.sort_unstable();
    known.sort_unstable();
    assert_eq!(pictured.as_slice(), known);
    for pictured in PICTURED {
        let experiment = experiments().iter().find(|e| e.name() == pictured.experiment).unwrap();
        let is_variant = |name| {
            let variants = experiment.variants();
            variants.iter().any(|v| (v.backend, v.name) == (Backend::Machine, name))
        };
        assert!(is_variant("mayfly") && is_variant(pictured.before), "{}", pictured.before);
        let metrics = experiment.describe().metrics;
        for name in pictured.metrics {
            assert!(metrics.iter().any(|of| of.name == *name), "{name}");
        }
        for name in pictured.sizes {
            // Rows say how memory was mapped; no option asks for it.
            let is_param = experiment.params().iter().any(|param| param.name == *name);
            assert!(is_param || *name == "mapping", "{name}");
        }
    }
}

/// One run of a few VMs of two experiments, on the machine.
fn run() -> Vec<Record> {
    let host = Host::gather(["mayfly".to_owned()]);
    let selection = Selection {
        experiments: vec!["device-registration".into(), "teardown".into()],
        backend: mayfly_lab::BackendChoice::Only(Backend::Machine),
        params: Params {
            vms: Some(2),
            orders: vec![Order::DevicesFirst],
            rounds: Some(2),
            memory: vec!["4MiB".parse::<Size>().unwrap()],
            ..Params::default()
        },
        ..Selection::default()
    };
    let plan = Plan::new(experiments(), &selection, &host).unwrap();
    let course = Course::default();
    plan.run(&course, &mut Silent);
    vec![Record::new(host.clone(), course.outcome().rows)]
}

#[test]
fn a_few_short_runs_are_written_as_tables_that_pass_the_check() {
    let records: Vec<Vec<Record>> = (0..5).map(|_| run()).collect();
    let runs = Runs::new(records.clone()).unwrap();
    let mut document = RESULTS.to_owned();
    document = replace(&document, HOST, &runs.told()).unwrap();
    for table in results() {
        document = replace(&document, table.name, &table.markdown(&runs)).unwrap();
    }
    check(&document, &results()).unwrap();
    let starting = document.split("<!-- figures: starting-a-vm -->").nth(1).unwrap();
    let line =
        starting.lines().find(|line| line.starts_with("| then the first memslot |")).unwrap();
    // Four designs were measured, KVM was not, and of each of five runs two VMs.
    let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
    assert!(cells[1..5].iter().all(|cell| cell.contains('s')) && cells[5] == "–", "{line}");
    assert_eq!(cells[6], "5 x 2", "{line}");
    // What was not run is a dash, and not an old figure.
    let caches = document.split("<!-- figures: turning-caches-on -->").nth(1).unwrap();
    assert!(caches.contains("| all vCPUs up | – | – | – | – | 5 |"), "{caches}");
    assert!(document.contains("5 runs on "));

    assert_eq!(Runs::new(records[..4].to_vec()).err(), Some(RunsError::TooFew(4)));
    let mut other = records.clone();
    other[3][0].host.kernel = "7.2".into();
    assert!(Runs::new(other).err().unwrap().to_string().contains("different kernels"));
    let mut partial = records;
    partial[1][0].partial = Some("it was interrupted".into());
    assert!(Runs::new(partial).err().unwrap().to_string().contains("interrupted"));
}

/// A document without the texts between markers.
fn by_hand(document: &str) -> String {
    let mut parts = document.split("<!-- figures: ");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let (name, rest) = part.split_once(" -->").unwrap();
        text + name + rest.split_once(&format!("<!-- end of {name} -->")).unwrap().1
    })
}

#[test]
fn all_tables_are_written_to_their_documents_and_nothing_else_is() {
    let copy = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("all-tables");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(copy.join("docs")).unwrap();
    let documents = check_all(&root()).unwrap();
    assert_eq!(
        documents,
        ["docs/results.md", "docs/device-registration.md", "docs/slot-delete.md", README]
    );
    let before: Vec<String> = documents
        .iter()
        .map(|name| {
            let text = fs::read_to_string(root().join(name)).unwrap();
            fs::write(copy.join(name), &text).unwrap();
            text
        })
        .collect();
    let runs = Runs::new((0..5).map(|_| run()).collect()).unwrap();
    write(&copy, &runs).unwrap();
    assert_eq!(check_all(&copy).unwrap(), documents);
    for (name, before) in documents.iter().zip(&before) {
        let after = fs::read_to_string(copy.join(name)).unwrap();
        assert_ne!(after, *before, "{name}");
        assert_eq!(by_hand(&after), by_hand(before), "{name}");
    }
    let readme = fs::read_to_string(copy.join(README)).unwrap();
    assert!(readme.contains(&runs.host()) && !readme.contains(&runs.told()));

    // A document without its markers is refused, and no other one is written.
    let marker = format!("<!-- end of {SUMMARY} -->");
    fs::write(copy.join(README), README_TEXT.replace(&marker, "")).unwrap();
    fs::write(copy.join("docs/results.md"), RESULTS).unwrap();
    let said = write(&copy, &runs).unwrap_err().to_string();
    assert!(said.contains(README) && said.contains(&marker), "{said}");
    assert_eq!(fs::read_to_string(copy.join("docs/results.md")).unwrap(), RESULTS);
}

#[test]
fn a_host_is_called_loaded_for_what_others_took_and_not_for_the_runs_own_threads() {
    let told = |others: [f64; 5]| {
        let of = |others| {
            let mut record = Record::new(Host::default(), Vec::new());
            record.conditions = Some(Conditions {
                load_before: Some(5.6),
                load_after: Some(128.0),
                stolen: Some(0.0),
                others: Some(others),
                seconds: 1.0,
            });
            vec![record]
        };
        Runs::new(others.map(of).to_vec()).unwrap().told()
    };
    let quiet = told([0.01, 0.02, 0.09, 0.03, 0.02]);
    assert!(
        quiet.starts_with("5 runs on ") && quiet.contains("Other programs took at most 9.0%"),
        "{quiet}"
    );
    let loaded = told([0.01, 0.02, 0.4, 0.03, 0.02]);
    assert!(loaded.starts_with("**Other programs used this host"), "{loaded}");
    assert!(loaded.contains("Other programs took at most 40%"), "{loaded}");
}

#[test]
fn what_was_typed_by_hand_is_refused_by_its_line() {
    let edited = |from: &str, to: &str| {
        let document = RESULTS.replacen(from, to, 1);
        assert_ne!(document, RESULTS, "{from}");
        check(&document, &results()).unwrap_err().to_string()
    };
    let said = edited("| registering a device |", "| registering |");
    assert!(said.contains("starting-a-vm") && said.contains("registering a device"), "{said}");
    assert!(edited("<!-- end of ending-a-vm -->", "").contains("end of ending-a-vm"));
    assert!(edited("| n |\n", "| samples |\n").contains("headings"));
    let said = edited("ARGS=\"teardown --memory 64GiB", "ARGS=\"teardown --memory 32GiB");
    assert!(
        said.contains("teardown --memory 64GiB --backend machine\"` does not stand before"),
        "{said}"
    );
}
