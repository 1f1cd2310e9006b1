//! The machines of all sides, started one after the other, and what their consoles say.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use mayfly_lifecycle_steps::{Architecture, Executed, Phase};
use mayfly_qemu::Interrupt;

use super::ENDED;
use super::exits::Exits;
use super::files::GuestFiles;
use super::job::{Job, NOTHING, Step, one_of};
use super::linux::{ALONE, init};
use crate::machine::Processor;
use crate::run::{Side, identify, linux, said, write};

/// A side's phases, and the exits of its guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// What is executed, by the name of the phase.
    pub phases: Vec<(String, Executed)>,
    /// The exits of the guest that boots; not of a lean Linux.
    pub exits: Exits,
}

impl Told {
    /// What is executed in a phase.
    pub(super) fn phase(&self, name: &str) -> Option<Executed> {
        self.phases.iter().find(|(its, _)| its == name).map(|(_, executed)| *executed)
    }

    /// What is executed in a step, which its phase has several times.
    pub fn step(&self, step: Step) -> Option<Executed> {
        let phase = self.phase(step.name())?;
        match step.job() {
            Job::Boot => Some(phase),
            Job::Traffic => Some(one_of(phase, self.phase(NOTHING)?, step.times())),
        }
    }

    /// What is executed where the VMM makes a VM, and ends without having run it. Mayfly has no VMM.
    pub fn alone(&self) -> Option<Executed> {
        self.phase(ALONE)
    }
}

/// What all sides have measured on a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The processor.
    pub processor: Processor,
    /// The version of the QEMU that makes the machine up.
    pub qemu: String,
    /// The version of the VMM in it.
    pub vmm: String,
    /// The processor's registers that tell it from others, as Mayfly reads them.
    pub registers: String,
    /// The kernel of the host and of the guests, as `uname -r` names it.
    pub linux: String,
    /// What each side has told, in the order of [`Side::ALL`].
    pub sides: [Told; Side::ALL.len()],
}

impl Measured {
    /// What a side has told.
    pub fn of(&self, side: Side) -> &Told {
        &self.sides[side as usize]
    }
}

/// Where Mayfly's machine has the guests' kernel and initial files: behind the program and its heap, in 1 GiB from
/// 1 GiB on.
const KERNEL_AT: u64 = 0x5000_0000;
const INITIAL_FILES_AT: u64 = 0x5c00_0000;

/// Starts all sides on a processor.
///
/// # Errors
///
/// Why one of them did not end, or what it has not said.
pub fn run(
    processor: Processor,
    files: &GuestFiles,
    interrupt: &Interrupt,
) -> anyhow::Result<Measured> {
    let scratch = tempfile::Builder::new().prefix("mayfly-beside-kvm-").tempdir();
    let scratch = scratch.context("cannot make a temporary directory")?;
    let mut measured = Measured {
        processor,
        qemu: files.files.qemu.clone(),
        vmm: files.version.clone(),
        registers: String::new(),
        linux: String::new(),
        sides: Default::default(),
    };
    let guest = scratch.path().join("guest");
    write(&guest, &files.of_guest()?)?;
    for (job, side) in Job::ALL.into_iter().flat_map(|job| Side::ALL.map(|side| (job, side))) {
        let serial = scratch.path().join(side.variant());
        let boots = match side {
            Side::Mayfly => of_mayfly(job, files, &guest),
            Side::Kvm | Side::Lean => {
                let initial = scratch.path().join("initial-files");
                write(&initial, &files.of_host(&init(job, side == Side::Kvm))?)?;
                linux(Architecture::Arm64, &files.files.kernel, &initial, side)
            }
        };
        let told = &mut measured.sides[side as usize];
        let (said, ()) = said(processor, side, &serial, &boots, interrupt, |said| {
            listen(said, job, side, told)
        })?;
        identify(&said, side, &mut measured.registers, &mut measured.linux)?;
    }
    Ok(measured)
}

/// What QEMU starts Mayfly with: the guests' kernels are modules.
fn of_mayfly(job: Job, files: &GuestFiles, guest: &Path) -> Vec<(&'static str, OsString)> {
    let guests = job.guests();
    let first = &guests[0];
    let mut loads = OsString::from(format!("guest-loader,addr={KERNEL_AT:#x},kernel="));
    loads.push(&files.files.kernel);
    // A comma ends an option of QEMU's, unless there are two.
    loads.push(format!(",bootargs={}", first.plan().replace(',', ",,")));
    let mut initial = OsString::from(format!("guest-loader,addr={INITIAL_FILES_AT:#x},initrd="));
    initial.push(guest);
    vec![
        ("-kernel", files.files.image.clone().into_os_string()),
        ("-append", script(job).into()),
        ("-device", loads),
        ("-device", initial),
    ]
}

/// The monitor's commands. All guests have the kernel and the ramdisk of the first.
fn script(job: Job) -> String {
    let guests = job.guests();
    let (first, last) = (guests[0].name, job.last());
    let mut commands = Vec::new();
    for guest in &guests[1..] {
        commands.push(guest.like(first));
    }
    commands.push("count".to_owned());
    // Who asks waits for who answers.
    commands.extend(guests.iter().rev().map(|guest| format!("vm start {}", guest.name)));
    for phase in job.phases() {
        commands.push(format!("await {first} {ENDED}{phase}"));
        commands.push(format!("count {phase}"));
    }
    commands.extend([
        format!("wait {first}"),
        format!("count {last}"),
        format!("vm stat {first}"),
        "poweroff".to_owned(),
    ]);
    commands.join("; ")
}

/// Takes what a console says of a job.
fn listen(said: &str, job: Job, side: Side, told: &mut Told) -> anyhow::Result<()> {
    for phase in said.lines().filter_map(Phase::read) {
        let phase = phase.map_err(|line| anyhow!("one of its lines is malformed: '{line}'"))?;
        told.phases.push((phase.name.to_owned(), phase.executed));
    }
    let guest = &job.guests()[0];
    let ready = format!("has {} CPUs, a disk of ", guest.vcpus);
    // Mayfly prints what each of its VMs says.
    ensure!(said.contains(&ready), "its guest has not booted");
    ensure!(said.contains(&guest.mac()), "its guest has no card");
    ensure!(!said.contains("guest: FAILED"), "its guest has failed");
    for phase in job.phases().into_iter().chain([job.last()]) {
        ensure!(told.phase(phase).is_some(), "the phase {phase} has not ended");
    }
    if side == Side::Mayfly {
        ensure!(said.contains("nothing was lost"), "it does not say that nothing was lost");
    }
    match (job, side) {
        (Job::Boot, Side::Mayfly) => told.exits = Exits::of_mayfly(said, guest.name)?,
        (Job::Boot, Side::Kvm) => told.exits = Exits::of_kvm(said)?,
        (Job::Boot, Side::Lean) | (Job::Traffic, _) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str =
        "guest: Linux 6.12 has 4 CPUs, a disk of 32768 sectors and the card 52:54:00:12:34:01\r\n";

    fn phase(name: &str, el2: u64) -> String {
        let executed = Executed { el2, ..Executed::default() };
        format!("{}\r\n", Phase { name, executed, nanoseconds: 9 })
    }

    #[test]
    fn a_side_has_booted_its_guest_and_told_of_it() {
        let exits = "linux: 24 exits: hvc\r\nlinux: of the exits to devices, 71 gicd\r\n";
        let said = format!("{READY}{}{exits}mayfly: nothing was lost: all\r\n", phase("boot", 7));
        let mut told = Told::default();
        listen(&said, Job::Boot, Side::Mayfly, &mut told).unwrap();
        assert_eq!(told.step(Step::Boot).unwrap().el2, 7);
        assert_eq!((told.exits.to_devices(), told.alone()), (71, None));
        let cases = [
            (said.replace("has 4 CPUs", "has 1 CPUs"), "its guest has not booted"),
            (said.replace("12:34:01", "12:34:02"), "its guest has no card"),
            (said.replace("boot vmm", "other vmm"), "the phase boot has not ended"),
            (said.replace("nothing", "something"), "it does not say that nothing was lost"),
            (said.replace("el2=7", "el2=x"), "one of its lines is malformed"),
        ];
        for (said, why) in cases {
            let error = listen(&said, Job::Boot, Side::Mayfly, &mut Told::default()).unwrap_err();
            assert!(error.to_string().starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_side_with_a_vmm_tells_of_it_alone() {
        let exits = "{ ret: 0, esr_ec: 0 } hitcount: 7\r\n{ ret: 2, esr_ec: 1 } hitcount: 5\r\n\
                     { gpa: 9000018, type: 0 } hitcount: 20\r\n";
        let said = format!("{}{}{READY}{exits}", phase(ALONE, 3), phase("boot", 7));
        let mut told = Told::default();
        listen(&said, Job::Boot, Side::Kvm, &mut told).unwrap();
        assert_eq!(told.alone().unwrap().el2, 3);
        assert_eq!(told.exits.devices["pl011"], 20);
        let mut lean = Told::default();
        listen(&said.replace("hitcount", "count"), Job::Boot, Side::Lean, &mut lean).unwrap();
        assert_eq!(lean.phases, told.phases);
    }

    #[test]
    fn the_phase_begins_before_the_guest_and_ends_behind_it() {
        let expected = "count; vm start linux; wait linux; count boot; vm stat linux; poweroff";
        assert_eq!(script(Job::Boot), expected);
        let traffic = script(Job::Traffic);
        let begins = "vm create answers asks vcpus=1 memory=256M ";
        assert!(traffic.starts_with(begins), "{traffic}");
        let middle = "count; vm start answers; vm start asks; await asks guest: ended ready; count ready; await asks \
                      guest: ended nothing; count nothing; ";
        assert!(traffic.contains(middle), "{traffic}");
        let ends = "await asks guest: ended bulk-64m; count bulk-64m; wait asks; count off; vm stat asks; poweroff";
        assert!(traffic.ends_with(ends), "{traffic}");
    }

    #[test]
    fn a_step_is_a_part_of_its_phase_without_what_starts_the_program() {
        let phases = [(NOTHING, 1000), (Step::Read.name(), 31_000), (Step::Bulk.name(), 5000)];
        let executed = |el2| Executed { el2, ..Executed::default() };
        let phases = phases.map(|(name, el2)| (name.to_owned(), executed(el2)));
        let told = Told { phases: phases.to_vec(), ..Told::default() };
        assert_eq!(told.step(Step::Read).unwrap().el2, 30);
        assert_eq!(told.step(Step::Bulk).unwrap().el2, 4000);
        assert_eq!(told.step(Step::Write), None);
    }
}
