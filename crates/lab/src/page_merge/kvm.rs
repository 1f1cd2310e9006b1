//! The running kernel's KVM, and its own page merger.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use mayfly_kvm::{Exit, GuestMemory, Ksm, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{ResultRow, Samples};

use crate::mapping::Mapping;
use crate::params::{Bound, Size};
use crate::patience::{Look, ended, until};
use crate::progress::Progress;

use super::names::{MERGED_WRITE, NAME, OWN_WRITE};
use super::scans::Scans;
use super::shape::Shape;

/// The port that ends a guest's pass.
const PORT: u16 = 0x10;

/// The part of a VM's memory that its second vCPU writes to all the time.
const HOT_PART: u64 = 8;

/// vCPUs of each VM: one whose pages are merged, and one whose are not.
const VCPUS: u32 = 2;

/// How often the merger is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// What KVM says of its guests' faults, where debugfs is there: those of all VMs there have been.
const FAULTS: &str = "/sys/kernel/debug/kvm/pf_taken";

/// Has the kernel's merger do all it can.
const SETTINGS: [(&str, &str); 6] = [
    ("advisor_mode", "none"),
    ("smart_scan", "0"),
    ("pages_to_scan", "10000"),
    ("sleep_millisecs", "0"),
    ("use_zero_pages", "0"),
    ("run", "1"),
];

/// A VM whose first vCPU runs when it is told.
struct Subject {
    vm: Vm,
    memory: GuestMemory,
    cold: Vcpu,
    /// The pass that its pages are in.
    pass: u32,
}

/// Runs the rounds on KVM, and fills the row.
pub(super) fn run(
    mut row: ResultRow,
    shape: Shape,
    progress: &mut dyn Progress,
) -> anyhow::Result<ResultRow> {
    row.params.insert(Bound::VCPUS.name.to_owned(), VCPUS.into());
    let Shape { vms, rounds, memory, .. } = shape;
    if memory.bytes() > Payload::REACH {
        return Ok(row.skipped(format!("{memory} is beyond the guest's reach")));
    }
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return Ok(row.skipped(why)),
    };
    let kvm = Kvm::open()?;
    let mut hot = Vec::new();
    let mut subjects = Vec::new();
    for _ in 0..vms {
        let (subject, vcpu) = subject(&kvm, memory)?;
        subjects.push(subject);
        hot.push(vcpu);
    }
    progress.begin(&format!("{NAME} on KVM, {vms} VMs"), rounds.into());
    let mut measured = Measured::default();
    let (ends, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    let faults = faults();
    let hot = scope(|scope| {
        let (ends, passes) = (&ends, &passes);
        let running: Vec<_> =
            hot.into_iter().map(|vcpu| scope.spawn(move || go(vcpu, ends, passes))).collect();
        let ran = SETTINGS.iter().try_for_each(|(name, value)| Ok(ksm.set(name, value)?)).and_then(
            |()| {
                measured.look_around(&mut subjects, &ksm)?;
                (0..rounds).try_for_each(|round| {
                    measured.round(round, &mut subjects, memory, &ksm)?;
                    progress.step();
                    anyhow::Ok(())
                })
            },
        );
        ends.store(true, Ordering::Relaxed);
        let joined: Vec<_> = running.into_iter().map(ScopedJoinHandle::join).collect();
        // A vCPU that has ended is why the others were waited for in vain.
        let ended = joined.into_iter().map(ended).collect::<anyhow::Result<Vec<_>>>()?;
        ran?;
        anyhow::Ok(ended)
    })?;
    progress.finish();
    let taken = faults.zip(self::faults()).map(|(before, after)| after.saturating_sub(before));
    for (Subject { vm, cold, .. }, hot) in subjects.into_iter().zip(hot) {
        vm.destroy(vec![cold, hot]);
    }
    drop(ksm);
    let row = taken.into_iter().fold(row, |row, taken| row.counter("kvm_faults", taken));
    Ok(measured.report(row, shape, passes.into_inner()))
}

#[derive(Default)]
struct Measured {
    merged_write: Samples,
    own_write: Samples,
    scans: Scans,
    /// Of `pages_shared` and `pages_sharing`, what there was before: pages of others, who stopped the merger and let
    /// them be, and those of these VMs that are always equal.
    before: [u64; 2],
    pages_shared: u64,
    pages_sharing: u64,
    /// Words that were not what the guest had written last.
    wrong: u64,
    checked: u64,
}

impl Measured {
    /// Notes what is shared while no two of the pages are equal that are to be merged.
    fn look_around(&mut self, subjects: &mut [Subject], ksm: &Ksm) -> anyhow::Result<()> {
        for (subject, pass) in subjects.iter_mut().zip(1..) {
            subject.run_to(pass)?;
        }
        look_at_all(ksm)?;
        self.before = shared(ksm)?;
        Ok(())
    }

    /// All pages become equal, are merged, and differ again, by as much as makes the next round's equal ones later.
    fn round(
        &mut self,
        round: u32,
        subjects: &mut [Subject],
        memory: Size,
        ksm: &Ksm,
    ) -> anyhow::Result<()> {
        let vms = subjects.len() as u32;
        let pages = cold(memory).count() as u64;
        let equal = (round + 1) * (vms + 2) + 1;
        for subject in &mut *subjects {
            subject.run_to(equal)?;
        }
        self.check(subjects, memory)?;
        let (start, scans) = (Instant::now(), ksm.counter("full_scans")?);
        let expected = pages * u64::from(vms - 1);
        until(LOOK, "all is merged", || {
            let [shared, sharing] = shared(ksm)?;
            self.pages_shared = shared.saturating_sub(self.before[0]);
            self.pages_sharing = sharing.saturating_sub(self.before[1]);
            let is_merged = self.pages_sharing >= expected;
            Ok(if is_merged { Look::Break(()) } else { Look::Continue(self.pages_sharing) })
        })?;
        self.scans.note(ksm.counter("full_scans")? - scans, start.elapsed());
        self.check(subjects, memory)?;
        for (subject, index) in subjects.iter_mut().zip(1..) {
            let per_page = |time: Duration| time / u32::try_from(pages).unwrap_or(u32::MAX);
            self.merged_write.record(per_page(subject.run_to(equal + 1)?));
            self.own_write.record(per_page(subject.run_to(equal + 2)?));
            subject.run_to(equal + 1 + index)?;
        }
        self.check(subjects, memory)?;
        look_at_all(ksm)
    }

    fn check(&mut self, subjects: &[Subject], memory: Size) -> anyhow::Result<()> {
        for Subject { memory: guest, pass, .. } in subjects {
            for page in cold(memory) {
                let words = [guest.read_u64(page)?, guest.read_u64(page + 8)?];
                self.wrong += u64::from(words != [u64::from(*pass), page as u64]);
                self.checked += 1;
            }
        }
        Ok(())
    }

    fn report(self, row: ResultRow, shape: Shape, passes: u64) -> ResultRow {
        let Shape { vms, memory, .. } = shape;
        let pages = cold(memory).count() as u64;
        let Self { wrong, checked, pages_shared, pages_sharing, .. } = self;
        self.scans
            .report(row)
            .metric(MERGED_WRITE, &self.merged_write)
            .metric(OWN_WRITE, &self.own_write)
            .counter("pages_shared", pages_shared)
            .counter("pages_sharing", pages_sharing)
            .counter("hot_passes", passes)
            .check("guest_checks", wrong == 0, format!("{wrong} of {checked} pages were wrong"))
            .check(
                "merged",
                pages_sharing >= pages * u64::from(vms - 1),
                format!(
                    "{pages} pages in {vms} VMs: {pages_shared} shared, {pages_sharing} sharing"
                ),
            )
    }
}

impl Subject {
    /// Has the guest write to its pages until they are in this pass. Returns the time of the last.
    fn run_to(&mut self, pass: u32) -> anyhow::Result<Duration> {
        let mut last = Duration::ZERO;
        while self.pass < pass {
            let start = Instant::now();
            let exit = self.cold.run_to_exit()?;
            last = start.elapsed();
            let Exit::PortWrite { value, .. } = exit else {
                return Err(anyhow!("the guest came out with {exit:?}"));
            };
            self.pass = value;
        }
        Ok(last)
    }
}

/// Offsets of the pages that are merged.
fn cold(memory: Size) -> impl Iterator<Item = usize> {
    (Payload::FREE as usize..hot(memory).start as usize).step_by(PAGE_SIZE as usize)
}

/// The memory that is written all the time.
fn hot(memory: Size) -> Range<u64> {
    memory.bytes() - memory.bytes() / HOT_PART..memory.bytes()
}

/// A VM, and its vCPU that writes all the time. Its pages, all 4 KiB, say which they are.
fn subject(kvm: &Kvm, size: Size) -> anyhow::Result<(Subject, Vcpu)> {
    let memory = Mapping::Pages.guest_memory(usize::try_from(size.bytes())?)?;
    memory.let_merge()?;
    Payload::install(&memory)?;
    for page in cold(size) {
        memory.write(page + 8, &(page as u64).to_le_bytes())?;
    }
    let vm = Vm::create(kvm)?;
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
    let mut vcpus = Vec::new();
    for (id, touch) in [(0, Payload::FREE..hot(size).start), (1, hot(size))] {
        let mut vcpu = vm.create_vcpu(id)?;
        vcpu.load(&Payload { touch, doorbell: None, port: PORT })?;
        vcpus.push(vcpu);
    }
    let [cold, hot] = vcpus.try_into().map_err(|_| anyhow!("there are two vCPUs"))?;
    Ok((Subject { vm, memory, cold, pass: 0 }, hot))
}

/// Runs a vCPU until the end, with a rest after each pass.
fn go(mut vcpu: Vcpu, ends: &AtomicBool, passes: &AtomicU64) -> anyhow::Result<Vcpu> {
    while !ends.load(Ordering::Relaxed) {
        vcpu.run_to_exit()?;
        passes.fetch_add(1, Ordering::Relaxed);
        sleep(LOOK);
    }
    Ok(vcpu)
}

/// Has the merger look at everything once more: its counters say what it found when it last looked.
fn look_at_all(ksm: &Ksm) -> anyhow::Result<()> {
    let scans = ksm.counter("full_scans")?;
    until(LOOK, "all is looked at again", || {
        let more = ksm.counter("full_scans")? - scans;
        Ok(if more >= 2 { Look::Break(()) } else { Look::Continue(more) })
    })
}

/// `pages_shared` and `pages_sharing`.
fn shared(ksm: &Ksm) -> anyhow::Result<[u64; 2]> {
    Ok([ksm.counter("pages_shared")?, ksm.counter("pages_sharing")?])
}

fn faults() -> Option<u64> {
    fs::read_to_string(FAULTS).ok()?.trim().parse().ok()
}
