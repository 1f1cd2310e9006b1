//! Programs of Prometheus that run for as long as a test does.

use std::fmt::Write;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::http::{escaped, get};

/// How long something may take that takes seconds: this is for programs that never get there.
const LONGEST: Duration = Duration::from_secs(300);

/// What is scraped: a page of a target, as that of an instance.
pub(crate) struct Job {
    pub(crate) path: String,
    pub(crate) target: String,
    pub(crate) instance: String,
}

/// A program that listens, and ends with the test.
struct Program {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Program {
    /// Starts it where nothing else listens. Another process may have taken the port before the program could: then it ends,
    /// and is started anew.
    fn start(log: &Path, ready: &str, command: impl Fn(&str) -> Command) -> Self {
        let begun = Instant::now();
        loop {
            let address =
                TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string();
            let output = File::create(log).unwrap();
            let mut command = command(&address);
            command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
            let mut program =
                Self { child: command.spawn().unwrap(), address, log: log.to_owned() };
            while program.child.try_wait().unwrap().is_none() {
                if get(&program.address, ready).is_ok_and(|page| !page.is_empty()) {
                    return program;
                }
                assert!(begun.elapsed() < LONGEST, "{}", program.said());
                sleep(Duration::from_millis(50));
            }
            assert!(program.said().contains("address already in use"), "{}", program.said());
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node exporter with nothing but the files of a directory.
pub(crate) struct Exporter(Program);

impl Exporter {
    pub(crate) fn start(program: &Path, directory: &Path) -> Self {
        let log = directory.with_extension("log");
        Self(Program::start(&log, "/metrics", |address| {
            let mut command = Command::new(program);
            command.args(["--collector.disable-defaults", "--collector.textfile"]);
            command.arg(format!("--collector.textfile.directory={}", directory.display()));
            command.arg(format!("--web.listen-address={address}"));
            command
        }))
    }

    pub(crate) fn address(&self) -> String {
        self.0.address.clone()
    }
}

/// A Prometheus that scrapes and follows its rules once a second.
pub(crate) struct Server(Program);

impl Server {
    pub(crate) fn start(program: &Path, scratch: &Path, jobs: &[Job], rules: &Path) -> Self {
        let mut text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{}\"]\nscrape_configs:\n",
            fs::canonicalize(rules).unwrap().display()
        );
        for (at, Job { path, target, instance }) in jobs.iter().enumerate() {
            let _ = writeln!(
                text,
                "  - job_name: job-{at}\n    metrics_path: {path}\n    static_configs:"
            );
            let _ = writeln!(
                text,
                "      - {{targets: [{target:?}], labels: {{instance: {instance}}}}}"
            );
        }
        let config = scratch.join("prometheus.yml");
        fs::write(&config, text).unwrap();
        Self(Program::start(&scratch.join("prometheus.log"), "/-/ready", |address| {
            let mut command = Command::new(program);
            command.arg(format!("--config.file={}", config.display()));
            command.arg(format!("--storage.tsdb.path={}", scratch.join("data").display()));
            command.arg(format!("--web.listen-address={address}"));
            command
        }))
    }

    /// The answer to a query.
    pub(crate) fn ask(&self, query: &str) -> Value {
        let path = format!("/api/v1/query?query={}", escaped(query));
        let text = get(&self.0.address, &path)
            .unwrap_or_else(|error| panic!("{error}: {}", self.0.said()));
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(answer["status"], "success", "{query}: {text}");
        answer["data"]["result"].clone()
    }

    /// Asks until the answer is as it has to be.
    pub(crate) fn until(&self, query: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.ask(query);
            if is_so(&answer) {
                return answer;
            }
            let targets = || get(&self.0.address, "/api/v1/targets").unwrap_or_default();
            assert!(
                begun.elapsed() < LONGEST,
                "{query}: {answer}\n{}\n{}",
                self.0.said(),
                targets()
            );
            sleep(Duration::from_millis(200));
        }
    }
}
