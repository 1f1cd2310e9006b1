//! `mayfly trace --gain`: which calls it makes again, in which order, and what it says of that. The VMM is this program.
#![cfg(target_arch = "x86_64")]

use std::fs;
use std::io::{Write, stderr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mayfly_kvm::{GuestMemory, IoEvent, Kvm, MemoryFlags, Payload, Vm};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::Value;

#[path = "common/traces.rs"]
mod common;

use common::{has_tracefs, scratch, wait_for};

/// Set in the process that is the VMM: how many mebibytes of memory its guest has beside those that it runs in.
const IS_VMM: &str = "MAYFLY_GAIN_TEST_MEMORY";
/// The test that is the VMM there.
const VMM: &str = "the_calls_are_made_again_as_they_were_and_in_the_better_order_in_turns";

const TRIES: usize = 20;
/// What the VMM does of its own between its vCPUs, and before its end.
const PAUSE: Duration = Duration::from_millis(10);
const MIB: usize = 1 << 20;

const CREATE: &str = "KVM_CREATE_VM";
const IRQCHIP: &str = "KVM_CREATE_IRQCHIP";
const DEVICE: &str = "KVM_IOEVENTFD";
const MEMORY: &str = "KVM_SET_USER_MEMORY_REGION";
const VCPU: &str = "KVM_CREATE_VCPU";
const CLOSE_VCPU: &str = "close of a vCPU";
const CLOSE_VM: &str = "close of the VM";

/// Makes a VM with its devices first, enters it, and closes it.
fn be_a_vmm(more: usize) {
    // What whoever follows was limited to is no limit of the VMM's.
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: maximum, maximum }).unwrap();
    let kvm = Kvm::open().unwrap();
    let (low, high) =
        (GuestMemory::map(2 * MIB).unwrap(), (more > 0).then(|| GuestMemory::map(more * MIB)));
    Payload::install(&low).unwrap();
    let doorbell = IoEvent::new(0xd000_0000, 4, None).unwrap();

    let vm = Vm::create(&kvm).unwrap();
    vm.create_irqchip().unwrap();
    vm.register_ioeventfd(&doorbell).unwrap();
    vm.set_memory_region(0, 0, &low, MemoryFlags::default()).unwrap();
    if let Some(high) = high {
        vm.set_memory_region(1, 1 << 32, &high.unwrap(), MemoryFlags::default()).unwrap();
    }
    let mut first = vm.create_vcpu(0).unwrap();
    sleep(PAUSE);
    let second = vm.create_vcpu(1).unwrap();
    first
        .load(&Payload { touch: Payload::FREE..Payload::FREE, doorbell: None, port: 0x10 })
        .unwrap();
    first.run_to_exit().unwrap();
    sleep(PAUSE);
    vm.destroy(vec![first, second]);
}

/// The VMM's command.
fn vmm() -> Vec<String> {
    let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&me, "--exact", VMM, "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// What follows the VMM, by stops: so it knows all arguments.
fn follower(record: &Path) -> Vec<String> {
    let record = record.to_str().unwrap();
    let mayfly = env!("CARGO_BIN_EXE_mayfly");
    let options = [mayfly, "trace", "--recorder", "ptrace", "--gain", "--json", record, "--"];
    options.map(str::to_owned).into_iter().chain(vmm()).collect()
}

fn run(command: &[String], memory: usize) -> String {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).env(IS_VMM, memory.to_string()).stdin(Stdio::null());
    let Output { status, stderr, .. } = process.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{status:?} {said}");
    said
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Whether there is KVM; says so where there is none.
fn is_here() -> bool {
    let is_here = Kvm::open().is_ok();
    if !is_here {
        let _ = writeln!(stderr(), "not run: there is no KVM here");
    }
    is_here
}

/// The gain of the memslot that waited for the irqchip's grace period, if it did.
fn gain(record: &Value) -> Option<&Value> {
    let mut stalls = record["stalls"].as_array().unwrap().iter();
    let waited =
        |stall: &&Value| stall["what"] == MEMORY && stall["cause"]["code"] == "grace-period";
    stalls.find(waited).map(|stall| &stall["cause"]["gain"])
}

/// Does it until the VMM has waited. Only some kernels have that wait, and one that has it may be over by then.
fn until_it_waited<T>(mut one: impl FnMut() -> Option<T>) -> Option<T> {
    let found = (0..TRIES).find_map(|_| one());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    if found.is_none() {
        let _ = writeln!(stderr(), "not run: Linux {kernel} may not defer what it frees");
        assert!(!kernel.starts_with("6.18."), "nothing has waited in {TRIES} runs");
    }
    found
}

/// What a process has called in each of its VMs, in order, and what passed between its vCPUs and before its first close,
/// from the record of somebody who has followed it.
fn lives(record: &Value) -> Vec<(Vec<String>, [Duration; 2])> {
    let pid = &record["processes"][0]["pid"];
    let mut lives: Vec<(Vec<String>, [Duration; 2])> = Vec::new();
    let mut over = Duration::ZERO;
    for call in record["calls"].as_array().unwrap().iter().filter(|call| call["pid"] == *pid) {
        let (name, on) = (call["name"].as_str().unwrap(), &call["on"]);
        let name = match name {
            CREATE => {
                lives.push((Vec::new(), [Duration::ZERO; 2]));
                continue;
            }
            IRQCHIP | DEVICE | MEMORY | VCPU => name,
            "close" if on["vcpu"].is_object() => CLOSE_VCPU,
            "close" if on["vm"].is_object() => CLOSE_VM,
            _ => continue,
        };
        let (calls, pauses) = lives.last_mut().unwrap();
        let at = Duration::from_nanos(call["at"].as_u64().unwrap());
        let pause = at.saturating_sub(over);
        match (calls.last().map(String::as_str), name) {
            (Some(VCPU), VCPU) => pauses[0] = pause,
            (Some(VCPU | DEVICE), CLOSE_VCPU) => pauses[1] = pause,
            _ => {}
        }
        over = at + Duration::from_nanos(call["took"].as_u64().unwrap());
        calls.push(name.to_owned());
    }
    lives
}

#[test]
fn the_calls_are_made_again_as_they_were_and_in_the_better_order_in_turns() {
    if let Some(memory) = std::env::var_os(IS_VMM) {
        return be_a_vmm(memory.to_str().unwrap().parse().unwrap());
    }
    if !is_here() {
        return;
    }
    let (of_vmm, of_mayfly) = (scratch("gain.json"), scratch("gain.outer.json"));
    let is_followed = has_tracefs();
    if !is_followed {
        let _ = writeln!(stderr(), "what is called is not looked at: that takes tracefs");
    }
    let found = until_it_waited(|| {
        let mut command = follower(&of_vmm);
        if is_followed {
            // Somebody who stops nothing, and sees what whoever follows the VMM calls himself.
            let mayfly = env!("CARGO_BIN_EXE_mayfly");
            let outer = [mayfly, "trace", "--recorder", "tracefs", "--quiet", "--json"];
            let outer = outer.into_iter().chain([of_mayfly.to_str().unwrap(), "--"]);
            command.splice(0..0, outer.map(str::to_owned));
        }
        let said = run(&command, 0);
        let outer = is_followed.then(|| read(&of_mayfly));
        // Where events are lost some calls are.
        let is_whole = outer.as_ref().is_none_or(|outer| outer["lost"].as_u64().unwrap_or(0) == 0);
        let record = read(&of_vmm);
        let measured = gain(&record).is_some_and(|gain| gain["measured"].is_object());
        // On a loaded host making the irqchip may be slow, too, and that has a better way of its own.
        let has_one_way = said.contains("and in 1 better way\n");
        (is_whole && measured && has_one_way).then_some((said, record, outer))
    });
    let Some((said, record, outer)) = found else { return };

    // The VM, its irqchip, its device, a slot, two vCPUs, a run.
    assert_eq!(record["replay"]["calls"], 7, "{}", record["replay"]);
    let left_out: Vec<_> = record["replay"]["left_out"].as_array().unwrap().iter().collect();
    assert!(left_out.contains(&&Value::from("KVM_SET_REGS")), "{left_out:?}");
    let measured = &gain(&record).unwrap()["measured"];
    assert_eq!(measured["otherwise"], "memory before the irqchip, and vCPUs before other devices");
    let rounds = measured["rounds"].as_u64().unwrap();
    assert!((6..=21).contains(&rounds), "{rounds}");
    for part in ["start", "close", "whole"] {
        let times = ["recorded", "better"].map(|way| measured[part][way].as_u64());
        assert!(times.into_iter().all(|time| time > Some(0)), "{measured}");
    }
    for line in [
        "mayfly: replaying its calls as recorded, and in 1 better way\n".to_owned(),
        "replayed to measure gains, in VMs of mayfly's own: 7 calls; not replayed: KVM_".to_owned(),
        format!("; each order was replayed {rounds} times, and the call itself took "),
    ] {
        assert!(said.contains(&line), "{line} {said}");
    }
    assert!(said.contains("    gain: ") || said.contains("    no gain"), "{said}");

    let Some(outer) = outer else { return };
    let end = [CLOSE_VCPU, CLOSE_VCPU, CLOSE_VM];
    let recorded = [&[IRQCHIP, DEVICE, MEMORY, VCPU, VCPU], &end[..]].concat();
    let better = [&[MEMORY, IRQCHIP, VCPU, VCPU, DEVICE], &end[..]].concat();
    // Another one begins each round.
    let turns = [&recorded, &better, &better, &recorded].into_iter().cycle();
    let expected: Vec<Vec<&str>> = turns.take(2 * rounds as usize).cloned().collect();
    let (calls, pauses): (Vec<_>, Vec<_>) = lives(&outer).into_iter().unzip();
    assert_eq!(calls, expected);
    // Each VM was closed within what is said of the close. How long a call ran is unknown if its thread had not been
    // scheduled since the recorder began.
    let ran = |call: &Value| call["used"]["ran"].as_u64();
    let closes = outer["calls"].as_array().unwrap().iter();
    let closes = closes.filter(|call| call["pid"] == outer["processes"][0]["pid"]);
    let closes = closes.filter(|call| call["name"] == "close" && call["on"]["vm"].is_object());
    let least = closes.filter_map(ran).min().unwrap();
    for way in ["recorded", "better"] {
        assert!(measured["close"][way].as_u64().unwrap() >= least, "{least}: {measured}");
    }
    // What the program did of its own passes as time, whichever way.
    assert!(pauses.iter().flatten().all(|pause| *pause >= PAUSE), "{pauses:?}");
}

#[test]
fn a_vm_that_there_is_no_room_for_is_not_replayed_and_a_line_says_which_limit_it_is() {
    if !is_here() {
        return;
    }
    let record = scratch("gain.limited.json");
    let found = until_it_waited(|| {
        let limited = ["sh", "-c", "ulimit -S -v 4194304; exec \"$0\" \"$@\""].map(str::to_owned);
        let said = run(&[&limited[..], &follower(&record)].concat(), 8 << 10);
        let record = read(&record);
        gain(&record).is_some().then_some((said, record))
    });
    let Some((said, record)) = found else { return };
    let why = gain(&record).unwrap()["not_measured"].as_str().unwrap();
    assert!(why.starts_with("8.13 GiB of address space for replaying a VM of 8.00 GiB, "), "{why}");
    assert!(why.ends_with(" allowed (RLIMIT_AS, RLIMIT_DATA)") && !why.contains('\n'), "{why}");
    assert!(record["replay"].is_null() && !said.contains("replayed to measure gains"), "{said}");
    // Its other memslot may have waited, too.
    assert!(said.contains(&format!("    no gain is claimed: {why}\n")), "{said}");
}

/// A trace that goes on, and ends with its test.
struct Following {
    front: Child,
    said: PathBuf,
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.front.kill();
        let _ = self.front.wait();
    }
}

impl Following {
    fn start(option: &str, record: &Path, program: &[String]) -> Self {
        let said = record.with_extension("said");
        let mut front = Command::new(env!("CARGO_BIN_EXE_mayfly"));
        front.args(["trace", "--recorder", "ptrace", option, "--json"]).arg(record).arg("--");
        front.args(program).env(IS_VMM, "0").stdin(Stdio::null());
        let (out, err) = (Stdio::null(), fs::File::create(&said).unwrap());
        Self { front: front.stdout(out).stderr(err).spawn().unwrap(), said }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it ends; gives how, and what it says.
    fn ended(mut self) -> (ExitStatus, String) {
        let mut status = None;
        wait_for("its end", || {
            status = self.front.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap(), self.said())
    }

    /// Waits until there is what is looked for in what it says. None where it has ended before.
    fn until<T>(&mut self, look: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut found = None;
        wait_for("what is to be interrupted", || {
            let has_ended = self.front.try_wait().unwrap().is_some();
            found = look(&self.said());
            has_ended || found.is_some()
        });
        found.filter(|_| self.front.try_wait().unwrap().is_none())
    }

    /// Waits until it is so; interrupts it, and gives how it ends and what it says. None where it has ended before.
    fn interrupted(mut self, is_so: impl Fn(&str) -> bool) -> Option<(ExitStatus, String)> {
        self.until(|said| is_so(said).then_some(()))?;
        kill_process(Pid::from_raw(self.front.id().cast_signed()).unwrap(), Signal::INT).unwrap();
        Some(self.ended())
    }
}

/// A VMM that the second time, for a proof, ends neither by itself nor by SIGINT.
struct Hangs {
    record: PathBuf,
    ran: PathBuf,
    /// The number of each that hangs, a line each.
    pids: PathBuf,
    program: Vec<String>,
}

impl Hangs {
    fn new(test: &str) -> Self {
        let named = |what: &str| scratch(&format!("{test}.{what}"));
        let (record, ran, pids) = (named("json"), named("ran"), named("pids"));
        let script = format!(
            "\"$0\" \"$@\"; if [ -e {0} ]; then trap true INT; echo $$ >>{1}; for second in $(seq 120); do sleep 1; done; fi; echo >{0}",
            ran.display(),
            pids.display()
        );
        let program = [&["sh".to_owned(), "-c".to_owned(), script], &vmm()[..]].concat();
        Self { record, ran, pids, program }
    }

    /// Follows it as if it had never run.
    fn start(&self) -> Following {
        for file in [&self.record, &self.ran, &self.pids] {
            let _ = fs::remove_file(file);
        }
        Following::start("--prove", &self.record, &self.program)
    }

    /// The one that hangs, once its line is whole.
    fn hanging(&self) -> Option<Pid> {
        let line = fs::read_to_string(&self.pids).ok()?;
        Pid::from_raw(line.strip_suffix('\n')?.parse().ok()?)
    }

    fn times(&self) -> usize {
        fs::read_to_string(&self.pids).unwrap().lines().count()
    }
}

#[test]
fn who_interrupts_the_proof_has_what_was_recorded_and_the_program_is_run_no_more() {
    if !is_here() {
        return;
    }
    let it = Hangs::new("unproved");
    let found = until_it_waited(|| it.start().interrupted(|_| it.hanging().is_some()));
    let Some((status, said)) = found else { return };
    assert!(status.success(), "{status:?} {said}");
    assert_eq!(it.times(), 1, "it was run once more");
    assert!(said.contains("\nnote: interrupted: ") && !said.contains("replaying"), "{said}");
    let record = read(&it.record);
    let gain = gain(&record).expect("it is as likely as before");
    assert!(gain.is_null() && said.contains("    likely: a grace period"), "{said}");
}

#[test]
fn whatever_ends_the_proof_what_was_recorded_is_kept_by_then() {
    if !is_here() {
        return;
    }
    let it = Hangs::new("killed");
    let found = until_it_waited(|| {
        let mut following = it.start();
        let pid = following.until(|_| it.hanging())?;
        drop(following);
        kill_process(pid, Signal::KILL).unwrap();
        Some(read(&it.record))
    });
    let Some(record) = found else { return };
    assert!(gain(&record).expect("it is as likely as before").is_null(), "{record}");
}

#[test]
fn who_interrupts_the_replay_has_what_was_recorded_without_a_gain() {
    if !is_here() {
        return;
    }
    let record = scratch("ungained.json");
    let found = until_it_waited(|| {
        let following = Following::start("--gain", &record, &vmm());
        // Whoever comes when it is over interrupts the command.
        let ended = following.interrupted(|said| said.contains("mayfly: replaying its calls"));
        ended.filter(|(status, _)| status.signal().is_none())
    });
    let Some((status, said)) = found else { return };
    assert!(status.success(), "{status:?} {said}");
    assert!(said.contains("    no gain is claimed: the replay was interrupted\n"), "{said}");
    assert_eq!(gain(&read(&record)).unwrap()["not_measured"], "the replay was interrupted");
}

#[test]
fn a_program_that_is_gone_when_it_is_to_be_run_again_does_not_cost_its_record() {
    if !is_here() {
        return;
    }
    let (record, program) = (scratch("gone.json"), scratch("gone.sh"));
    let vmm: Vec<String> = vmm().iter().map(|word| format!("'{word}'")).collect();
    let found = until_it_waited(|| {
        fs::write(&program, format!("#!/bin/sh\nrm \"$0\"\n{}\n", vmm.join(" "))).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let command = [program.to_str().unwrap().to_owned()];
        let ended = Following::start("--prove", &record, &command).ended();
        // Another test may have been forking while it was written, so that it could not be executed.
        let has_run = ended.0.code() != Some(126);
        (has_run && gain(&read(&record)).is_some()).then_some(ended)
    });
    let Some((status, said)) = found else { return };
    assert_eq!(status.code(), Some(127), "{said}");
    assert!(said.contains("    likely: a grace period"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("mayfly: cannot execute "), "{said}");
}
