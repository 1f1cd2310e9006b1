//! On a directory that looks like the kernel's, with processes that look like others.

use std::os::unix::fs::symlink;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Where a test's merger is, removed when dropped.
struct Host(PathBuf);

const SOME: [(&str, &str); 5] = [
    ("advisor_mode", "none [scan-time]\n"),
    ("pages_to_scan", "100\n"),
    ("sleep_millisecs", "20\n"),
    ("use_zero_pages", "0\n"),
    ("run", "0\n"),
];

const OURS: [(&str, &str); 6] = [
    ("advisor_mode", "none"),
    ("smart_scan", "0"),
    ("pages_to_scan", "5000"),
    ("sleep_millisecs", "0"),
    ("use_zero_pages", "0"),
    ("run", "1"),
];

impl Host {
    fn new(name: &str) -> Self {
        let host =
            Self(std::env::temp_dir().join(format!("mayfly-ksm-{}-{name}", std::process::id())));
        let Places { directory, proc, .. } = host.places();
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all(proc.join("self/ns")).unwrap();
        symlink("pid:[4026531836]", proc.join("self/ns/pid")).unwrap();
        for (name, value) in SOME {
            host.set(name, value);
        }
        host
    }

    fn places(&self) -> Places {
        let Self(root) = self;
        let note = Note::at(root.join("note"));
        Places { directory: root.join("ksm"), note, proc: root.join("proc") }
    }

    fn take(&self, company: Company) -> Result<Ksm, Refused> {
        Ksm::take_in(self.places(), &OURS, company)
    }

    /// For the next to take it after another.
    fn taken_when_free(&self) -> Ksm {
        when_nobody_forks(|| match self.take(Company::None) {
            Err(Refused::NotToBeHad(why)) if why == "another run has the page merger" => None,
            taken => Some(taken.unwrap()),
        })
    }

    fn started(&self) -> Ksm {
        let ksm = self.take(Company::None).unwrap();
        ksm.start().unwrap();
        assert_eq!(self.values(), ["none", "5000", "0", "0", "1"]);
        ksm
    }

    fn set(&self, name: &str, value: &str) {
        fs::write(self.0.join("ksm").join(name), value).unwrap();
    }

    fn stranger(&self, pid: u32) {
        let process = self.0.join("proc").join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("comm"), "guest\n").unwrap();
        fs::write(process.join("ksm_stat"), "ksm_mergeable: yes\n").unwrap();
    }

    fn values(&self) -> [String; SOME.len()] {
        SOME.map(|(name, _)| {
            fs::read_to_string(self.0.join("ksm").join(name)).unwrap().trim().to_owned()
        })
    }

    fn is_as_it_was(&self) -> bool {
        // What is put back is the value alone.
        let values = self.values();
        !self.0.join("note").exists()
            && (values == ["scan-time", "100", "20", "0", "0"]
                || values == SOME.map(|(_, value)| value.trim()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// As when the process is killed: nothing is put back here, and its ends are closed.
fn killed(ksm: &Ksm) -> Child {
    let (_, mut restorer) = ksm.held().take().unwrap();
    drop(restorer.stdin.take());
    restorer
}

/// What `tried` gives when it gives something. A child that another test has just forked has the lock's file until it
/// becomes what it is to be, and so the lock.
fn when_nobody_forks<T>(mut tried: impl FnMut() -> Option<T>) -> T {
    loop {
        match tried() {
            Some(done) => return done,
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

fn kill(restorer: &mut Child, signal: Signal) {
    kill_process(Pid::from_child(restorer), signal).unwrap();
}

#[test]
fn every_setting_is_put_back_as_it_was() {
    let host = Host::new("back");
    let ksm = host.started();
    assert_eq!(ksm.counter("pages_to_scan").unwrap(), 5000);
    ksm.put_back();
    assert!(host.is_as_it_was(), "{:?}", host.values());
    assert_eq!(ksm.start().unwrap_err().errno(), Some(Errno::PERM.raw_os_error()));
    assert!(host.is_as_it_was());
    host.set("run", "1");
    drop(ksm);
    assert_eq!(host.values()[4], "1", "somebody else's, by then");
}

#[test]
fn settings_are_put_back_when_nobody_is_left_to_do_it_even_after_an_interrupt() {
    let host = Host::new("gone");
    let mut restorer = {
        let mut restorer = killed(&host.started());
        kill(&mut restorer, Signal::INT);
        restorer
    };
    restorer.wait().unwrap();
    assert!(host.is_as_it_was(), "{:?}", host.values());
}

#[test]
fn what_is_left_when_the_restorer_is_killed_too_the_next_start_puts_back() {
    for takes in [false, true] {
        let host = Host::new(&format!("left-{takes}"));
        let ksm = host.started();
        let (lock, mut restorer) = ksm.held().take().unwrap();
        kill(&mut restorer, Signal::KILL);
        restorer.wait().unwrap();
        assert_eq!(Ksm::put_back_what_was_left_in(&host.places()), 0, "the run is alive");
        assert!(host.take(Company::None).is_err());
        drop(lock);
        // Set anew by another process since.
        host.set("pages_to_scan", "77");
        if takes {
            drop(host.taken_when_free());
        } else {
            let put_back = || Ksm::put_back_what_was_left_in(&host.places());
            assert_eq!(when_nobody_forks(|| Some(put_back()).filter(|&count| count > 0)), 3);
        }
        assert_eq!(host.values(), ["scan-time", "77", "20", "0", "0"]);
        assert!(!host.0.join("note").exists());
        assert_eq!(Ksm::put_back_what_was_left_in(&host.places()), 0);
    }
}

#[test]
fn what_a_restorer_finds_set_anew_it_leaves_so() {
    let host = Host::new("anew");
    let ksm = host.started();
    host.set("sleep_millisecs", "33");
    killed(&ksm).wait().unwrap();
    assert_eq!(host.values(), ["scan-time", "100", "33", "0", "0"]);
}

#[test]
fn one_run_at_a_time_has_it() {
    let host = Host::new("lock");
    let first = host.started();
    let refused = host.take(Company::Any).unwrap_err().to_string();
    assert_eq!(refused, "another run has the page merger");
    // Killed, it is the restorer's until it has put everything back.
    let mut restorer = killed(&first);
    restorer.wait().unwrap();
    drop(host.taken_when_free());
}

#[test]
fn a_merger_that_is_not_there_or_that_somebody_runs_is_not_taken() {
    let host = Host::new("runs");
    host.set("run", "1\n");
    let refused = host.take(Company::Any).unwrap_err().to_string();
    assert!(refused.contains("somebody else"), "{refused}");
    fs::remove_file(host.0.join("ksm/run")).unwrap();
    let missing = host.take(Company::Any).unwrap_err().to_string();
    assert!(missing.contains("no page merger"), "{missing}");
}

#[test]
fn where_others_have_mergeable_memory_it_is_not_taken_unless_asked_for_and_nothing_is_changed() {
    let host = Host::new("strangers");
    host.stranger(4_000_000);
    host.stranger(4_000_001);
    let refused = host.take(Company::None).unwrap_err();
    let said = "process 4000000 (guest) has mergeable memory, and 1 more";
    assert_eq!(refused.to_string(), said);
    assert!(host.is_as_it_was());
    let ksm = host.take(Company::Any).unwrap();
    assert_eq!(ksm.strangers().len(), 2);
    assert_eq!(ksm.check_company(), Ok(()));
}

#[test]
fn who_comes_while_it_runs_is_seen() {
    let host = Host::new("comes");
    let ksm = host.started();
    assert_eq!(ksm.check_company(), Ok(()));
    host.stranger(4_000_002);
    assert!(matches!(ksm.check_company(), Err(Refused::Strangers { more: 0, .. })));
}
