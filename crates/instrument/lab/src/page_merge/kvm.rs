//! The running kernel's KVM, and its own page merger.

mod merged;

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use mayfly_kvm::{Exit, GuestMemory, Ksm, Kvm, MemoryFlags, Payload, Refused, Vcpu, Vm};
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{ResultRow, Samples};

use crate::crew;
use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::params::{self, Bound, Size};
use crate::patience::{Look, ended, until};
use crate::progress::Progress;
use crate::start::{Start, Starts};
use crate::undo::Changed;

use self::merged::Merged;
use super::names::{LEFT_ALONE, MERGED_WRITE, NAME, OWN_WRITE};
use super::rounds::BEGINS;
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

/// How often it is looked at before who else has mergeable memory is looked at once.
const LOOKS: u32 = 256;

/// How often the merger goes over all memory in vain before it is said to be so, and for how long at least. It merges a
/// page that it has found unchanged once, unless another thread has the page locked or holds a reference to it just then.
/// Of a few MiB it makes these scans within one slice of such a thread.
const IN_VAIN: (u64, Duration) = (30, Duration::from_secs(5));

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
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<ResultRow> {
    row.params.insert(Bound::VCPUS.name.to_owned(), VCPUS.into());
    let Shape { vms, memory, .. } = shape;
    if memory.bytes() > Payload::REACH {
        return Ok(row.skipped(format!("{memory} is beyond the guest's reach")));
    }
    let Some(asked) = request.params.ksm else {
        return Ok(row.skipped(LEFT_ALONE));
    };
    let ksm = match Ksm::take(&SETTINGS, asked.company()) {
        Ok(ksm) => Arc::new(ksm),
        Err(refused) => return Ok(row.skipped(because(&refused))),
    };
    let kept = request.undo.keep(Arc::new(Merger(Arc::clone(&ksm))));
    let row = row.param(params::Ksm::PARAM, asked.name());
    let kvm = Kvm::open()?;
    let mut hot = Vec::new();
    let mut subjects = Vec::new();
    for _ in 0..vms {
        let (subject, vcpu) = subject(&kvm, memory)?;
        subjects.push(subject);
        hot.push(vcpu);
    }
    let faults = faults();
    let others = ksm.strangers().len();
    let passes = AtomicU64::new(0);
    let (measured, hot) = all_rounds(&ksm, &mut subjects, hot, shape, &passes, progress)?;
    progress.finish();
    let others = [others, ksm.strangers().len()];
    let taken = faults.zip(self::faults()).map(|(before, after)| after.saturating_sub(before));
    for (Subject { vm, memory, cold, .. }, hot) in subjects.into_iter().zip(hot) {
        memory.let_not_merge()?;
        vm.destroy(vec![cold, hot]);
    }
    let left = left_merged(&ksm)?;
    drop(kept);
    let row = taken.into_iter().fold(row, |row, taken| row.counter("kvm_faults", taken));
    let row =
        row.counter("others_before", others[0] as u64).counter("others_after", others[1] as u64);
    let row = left.into_iter().fold(row, |row, left| {
        row.check("taken_apart", left == 0, format!("{left} pages of this run are still merged"))
    });
    Ok(match measured {
        Ok(measured) => measured.report(row, shape, passes.into_inner()),
        Err(Stopped(why)) => row.skipped(why),
    })
}

/// Why the merger is not taken, and what would have it taken all the same.
fn because(refused: &Refused) -> String {
    match refused {
        Refused::Strangers { .. } => {
            format!("{refused}; --ksm=shared has that merged as well")
        }
        Refused::NotToBeHad(_) => refused.to_string(),
    }
}

/// The merger, for code that ends the run early.
struct Merger(Arc<Ksm>);

impl Changed for Merger {
    fn put_back(&self) {
        self.0.put_back();
    }
}

/// Something on the host keeps the rounds from going on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Stopped(String);

/// Has the merger run, and the VMs with it. Gives back the vCPUs that write all the time.
fn all_rounds(
    ksm: &Ksm,
    subjects: &mut [Subject],
    hot: Vec<Vcpu>,
    shape: Shape,
    passes: &AtomicU64,
    progress: &mut dyn Progress,
) -> anyhow::Result<(Result<Measured, Stopped>, Vec<Vcpu>)> {
    let Shape { vms, rounds, memory, .. } = shape;
    progress.begin(&format!("{NAME} on KVM, {vms} VMs"), rounds.into());
    let mut measured = Measured::default();
    let ends = AtomicBool::new(false);
    scope(|scope| {
        let ends = &ends;
        let all = hot.into_iter().map(|vcpu| move || go(vcpu, ends, passes));
        let running = crew::start(scope, all, ends)?;
        let ran = ksm.start().map_err(anyhow::Error::from).and_then(|()| {
            measured.look_around(subjects, ksm)?;
            (0..rounds).try_for_each(|round| {
                measured.round(round, subjects, memory, ksm)?;
                progress.step();
                anyhow::Ok(())
            })
        });
        ends.store(true, Ordering::Relaxed);
        let joined: Vec<_> = running.into_iter().map(ScopedJoinHandle::join).collect();
        // A vCPU that has ended is why the others were waited for in vain.
        let ended = joined.into_iter().map(ended).collect::<anyhow::Result<Vec<_>>>()?;
        match ran.map_err(anyhow::Error::downcast::<Stopped>) {
            Ok(()) => Ok((Ok(measured), ended)),
            Err(Ok(stopped)) => Ok((Err(stopped), ended)),
            Err(Err(error)) => Err(error),
        }
    })
}

#[derive(Default)]
struct Measured {
    starts: Starts,
    merged_write: Samples,
    own_write: Samples,
    scans: Scans,
    /// What was merged before any of the pages were that are to be: those of these VMs that are always equal; and where
    /// the kernel counts all processes' alone, others' too.
    before: Merged,
    merged: Merged,
    /// Words that were not what the guest had written last.
    wrong: u64,
    checked: u64,
}

impl Measured {
    /// Notes what is merged while no two of the pages are equal that are to be.
    fn look_around(&mut self, subjects: &mut [Subject], ksm: &Ksm) -> anyhow::Result<()> {
        for (subject, pass) in subjects.iter_mut().zip(1..) {
            subject.run_to(pass)?;
        }
        look_at_all(ksm)?;
        self.before = Merged::of(ksm)?;
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
        for Subject { vm, .. } in &*subjects {
            let (slots, vcpus) = (vm.memory_regions() as u64, VCPUS.into());
            self.starts.note(BEGINS, Start { slots, vcpus, ..Start::default() });
        }
        let (start, scans) = (Instant::now(), ksm.counter("full_scans")?);
        self.merge(pages, vms.into(), ksm)?;
        self.scans.note(ksm.counter("full_scans")? - scans, start.elapsed());
        self.check(subjects, memory)?;
        for (subject, index) in subjects.iter_mut().zip(1..) {
            let per_page = |time: Duration| time / u32::try_from(pages).unwrap_or(u32::MAX);
            self.merged_write.record(per_page(subject.run_to(equal + 1)?));
            self.own_write.record(per_page(subject.run_to(equal + 2)?));
            subject.run_to(equal + 1 + index)?;
        }
        self.merged_write.end_round();
        self.own_write.end_round();
        self.check(subjects, memory)?;
        look_at_all(ksm)
    }

    /// Waits until all is merged: as long as more and more is, or the merger has not gone over all of it often enough.
    fn merge(&mut self, pages: u64, vms: u64, ksm: &Ksm) -> anyhow::Result<()> {
        let (mut most, mut since, mut at) = (0, ksm.counter("full_scans")?, Instant::now());
        let mut looks = 0_u32;
        until(LOOK, "all equal pages are merged", || {
            if looks.is_multiple_of(LOOKS) {
                // The merger does not wait to be looked at: who comes may have been merged by then.
                ksm.check_company().map_err(|refused| {
                    Stopped(format!("{refused}, by now; what of it has been merged stays so"))
                })?;
            }
            looks += 1;
            self.merged = Merged::of(ksm)?.since(self.before);
            let (merged, all) = self.merged.of_all(pages, vms);
            let scans = ksm.counter("full_scans")?;
            if merged > most {
                (most, since, at) = (merged, scans, Instant::now());
            }
            if merged >= all {
                return Ok(Look::Break(()));
            }
            if scans - since > IN_VAIN.0 && at.elapsed() > IN_VAIN.1 {
                let why = if self.merged.own.is_some() {
                    "and no more become so"
                } else {
                    "and this kernel counts other processes' with them, of which some may have left"
                };
                Err(Stopped(format!("{merged} of {all} pages are merged, {why}")))?;
            }
            Ok(Look::Continue(scans - since))
        })
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
        let Self { wrong, checked, merged: all, .. } = self;
        let Merged { own, shared, sharing } = all;
        let (merged, wanted) = all.of_all(pages, vms.into());
        let row = own.into_iter().fold(row, |row, own| row.counter("own_pages_merged", own));
        Scans::report(self.starts.report(row), [&self.scans])
            .metric(MERGED_WRITE, &self.merged_write)
            .metric(OWN_WRITE, &self.own_write)
            .counter("pages_shared", shared)
            .counter("pages_sharing", sharing)
            .counter("hot_passes", passes)
            .check("guest_checks", wrong == 0, format!("{wrong} of {checked} pages were wrong"))
            .check(
                "merged",
                merged >= wanted,
                format!("{pages} pages in {vms} VMs: {merged} merged, of {wanted}"),
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
    until(LOOK, "the merger has scanned all pages again", || {
        let more = ksm.counter("full_scans")? - scans;
        Ok(if more >= 2 { Look::Break(()) } else { Look::Continue(more) })
    })
}

/// Pages of this process that are merged still, when none may be: the merger's books are in order when it has gone over
/// what is no longer there. Then it stands still, where nobody else has such memory.
fn left_merged(ksm: &Ksm) -> anyhow::Result<Option<u64>> {
    let scans = ksm.counter("full_scans")?;
    until(LOOK, "the merged pages are unmerged", || {
        let more = ksm.counter("full_scans")? - scans;
        Ok(match ksm.own_merged() {
            Some(left) if left > 0 && more < 2 => Look::Continue(left),
            _ => Look::Break(()),
        })
    })?;
    Ok(ksm.own_merged())
}

fn faults() -> Option<u64> {
    fs::read_to_string(FAULTS).ok()?.trim().parse().ok()
}
