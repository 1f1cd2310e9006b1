//! Prometheus' own programs read what Mayfly writes: its linter, its client's strict parser, and a server that scrapes two
//! hosts and a watch, and is asked which host is affected.

mod http;
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use http::Pages;
use serde_json::Value;
use server::{Exporter, Job, Server};

use crate::packaged::{path, queries};
use crate::{exposed, tools};

/// Runs a program on a text.
fn fed(mut command: Command, text: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// What Mayfly writes, of every kind.
fn texts() -> [(&'static str, String); 3] {
    [
        ("affected", exposed::doctor(true)),
        ("quiet", exposed::doctor(false)),
        ("watch", exposed::watch()),
    ]
}

#[test]
fn promtool_finds_nothing_wrong_with_the_rules_and_they_say_what_their_test_expects() {
    let Some(promtool) = tools::needed("promtool") else { return };
    for (what, file) in [("check", "mayfly.rules.yml"), ("test", "mayfly.rules.test.yml")] {
        let mut command = Command::new(&promtool);
        command.args([what, "rules"]).arg(path("prometheus").join(file));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{file}: {}", said(&output));
    }
}

#[test]
fn the_older_format_is_what_promtool_takes_for_well_formed_metrics() {
    let Some(promtool) = tools::needed("promtool") else { return };
    for (what, text) in texts() {
        let mut command = Command::new(&promtool);
        command.args(["check", "metrics"]);
        let output = fed(command, &text);
        // A counter's family has another name than its samples in OpenMetrics, and so no help in the older format.
        let said = said(&output).replace("mayfly_watch_vm_exits_total no help text\n", "");
        assert!(said.is_empty(), "{what}: {said}");
    }
}

/// Reads `OpenMetrics` as strictly as Prometheus' own client does, which refuses two names that clash.
const STRICT: &str = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
samples = [sample for family in parse(sys.stdin.read()) for sample in family.samples]
print(len(samples))
";

#[test]
fn the_strict_parser_of_prometheus_own_client_takes_every_sample() {
    let Some(python) = tools::needed("python3") else { return };
    let command = |code| {
        let mut command = Command::new(&python);
        command.args(["-c", code]).env("PYTHONPATH", tools::python_modules());
        command
    };
    if !fed(command("import prometheus_client"), "").status.success() {
        eprintln!("not run: Python has no prometheus_client here; make setup-test fetches it");
        return;
    }
    let clash = "# TYPE a counter\na_total 1\n# TYPE a_total gauge\na_total 2\n# EOF\n";
    assert!(!fed(command(STRICT), clash).status.success(), "the parser is not strict");
    for (what, text) in texts() {
        let output = fed(command(STRICT), &text);
        assert!(output.status.success(), "{what}: {}", said(&output));
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(said(&output).trim(), samples.to_string(), "{what}");
    }
}

/// The label `instance` of each series of an answer.
fn instances(answer: &Value) -> BTreeSet<&str> {
    let series = answer.as_array().unwrap().iter();
    series.filter_map(|one| one["metric"]["instance"].as_str()).collect()
}

#[test]
fn a_prometheus_that_scrapes_two_hosts_says_which_of_them_is_affected() {
    let Some(prometheus) = tools::needed("prometheus") else { return };
    let scratch = scratch("fleet-prometheus");
    // As OpenMetrics: the host's name says which way it was read.
    let pages = Pages::serve(texts().map(|(name, text)| (format!("/{name}"), text)).into());
    let target = |page: &str, instance: &str| Job {
        path: format!("/{page}"),
        target: pages.address(),
        instance: instance.to_owned(),
    };
    let mut jobs = vec![
        target("affected", "a-direct"),
        target("quiet", "b-direct"),
        target("watch", "a-direct"),
    ];
    let mut affected = BTreeSet::from(["a-direct"]);
    // As the older format, by the way that the documentation says: a file, and a node exporter.
    let exporters: Vec<Exporter> = match tools::find("prometheus-node-exporter") {
        None => {
            eprintln!(
                "not run in part: there is no prometheus-node-exporter here; make setup-test fetches it"
            );
            vec![]
        }
        Some(program) => {
            let texts = texts();
            let of = |host: &str, files: &[usize]| {
                let directory = scratch.join(host);
                fs::create_dir_all(&directory).unwrap();
                for at in files {
                    let (name, text) = &texts[*at];
                    fs::write(directory.join(format!("{name}.prom")), text).unwrap();
                }
                Exporter::start(&program, &directory)
            };
            vec![of("a", &[0, 2]), of("b", &[1])]
        }
    };
    for (exporter, instance) in exporters.iter().zip(["a", "b"]) {
        jobs.push(Job {
            path: "/metrics".to_owned(),
            target: exporter.address(),
            instance: instance.to_owned(),
        });
    }
    if !exporters.is_empty() {
        affected.insert("a");
    }
    let server = Server::start(&prometheus, &scratch, &jobs, &path("prometheus/mayfly.rules.yml"));

    let up = server.until("up", |answer| {
        let series = answer.as_array().unwrap();
        series.len() == jobs.len() && series.iter().all(|one| one["value"][1] == "1")
    });
    assert_eq!(instances(&up).len(), affected.len() * 2);

    // Which host is affected, by the record, and by the alert.
    let all = server.until("instance:mayfly_doctor_finding:sum", |answer| {
        instances(answer).len() == affected.len() * 2
    });
    assert_eq!(instances(&server.ask("instance:mayfly_doctor_finding:sum > 0")), affected, "{all}");
    let alerts = "ALERTS{alertname=\"MayflyHostMakesVmsWait\",alertstate=\"firing\"}";
    let alerts = server.until(alerts, |answer| instances(answer) == affected);
    assert!(alerts.as_array().unwrap().iter().any(|one| one["metric"]["code"] == "grace-period"));
    // Which VM of it waits in a call, by the name that its VMM gave it.
    let waits = server.until("ALERTS{alertname=\"MayflyCallWaits\",name!=\"\"}", |answer| {
        instances(answer) == affected
    });
    assert_eq!(waits[0]["metric"]["name"], "we\"b\\-\n1");
    // Every panel of the dashboard has something to show.
    for query in queries() {
        server.until(&query, |answer| !answer.as_array().unwrap().is_empty());
    }
}
