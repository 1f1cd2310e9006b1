//! VMIDs for more roots than there are VMIDs.
//!
//! A root's translations are tagged with its VMID, a number of 8 or 16 bits on Arm (`ID_AA64MMFR1_EL1.VMIDBits`) and of
//! up to 14 on RISC-V (`hgatp`). A number belongs to a root for a *generation*. When all numbers are given out, a
//! *roll-over* begins the next generation: numbers under which vCPUs are active stay with their roots, every TLB is
//! invalidated once, and the other roots get new numbers when they are next entered. (The scheme is that of Linux,
//! `arch/arm64/mm/context.c` and `arch/arm64/kvm/vmid.c`, from which the protocol differs.)
//!
//! # The protocol
//!
//! **Tags.** A tag is a generation (48 bits) and a number (16 bits). A root keeps its latest tag in its [`VmidTag`]: it
//! says that the number was the root's in that generation. Tags of a root only grow. They are replaced by
//! compare-exchange, so that vCPUs which enter a root at the same time agree on one.
//!
//! **Lines.** A CPU's line is written by the CPU itself, by roll-overs, and by callers that retire a root. It holds the
//! generation that the CPU is in, and the number under which its translation base register names a root, or 0. To
//! *activate* a root whose tag is of the line's generation, the CPU replaces its line, as it read it before, by that
//! tag. The tag stays there when the vCPU leaves: the register still names the root. A roll-over adds one to the line's
//! generation, and leaves the number. Each of these is one atomic step on one word. So a roll-over either finds a root
//! active, or moves the line first; then the CPU's exchange fails, and tags of the generation that ended no longer fit
//! its line. No barrier is needed for that, and a CPU that activates again what its line shows writes nothing.
//!
//! A CPU activates on its own line only, at a moment when nothing preempts the vCPU or moves it elsewhere until the
//! guest is left. So no two vCPUs use one line at a time. There are as many lines as CPUs, from the beginning on, and
//! fewer than numbers plus one. So a CPU that wants a number finds one, at the latest after a roll-over: each other CPU
//! keeps one number at most, and the CPU that rolls over keeps none.
//!
//! **\[vacate\]** A line shows a number at least as long as the CPU may walk from the root that the number names. Some
//! CPUs walk speculatively after the guest is left: Arm's with errata 1165522, 1319367 or 1530923, and RISC-V's, whose
//! manual allows it. So before a number leaves a line, the platform has the CPU name no root ([`Tlb::vacate`]).
//!
//! **Numbers.** For each number it is known in which generation it was last held, and whether it was *kept* through the
//! roll-over that began that generation. A number that was last held in an earlier generation is free. It is *claimed*
//! by compare-exchange from such a state to (present generation, claimed). So nothing has to be cleared at a roll-over;
//! and a claim that was delayed past one finds the number held in the new generation, or claims it in a generation that
//! is over, where the claim is worth nothing. If a CPU claims a number, and finds that another CPU has given the root
//! one meanwhile, it gives its own number back, never used. There are numbers for each root that exists, and for each
//! CPU, as long as VMIDs have bits for them. More numbers are made when a root is made, so none has to be made when a
//! root is entered.
//!
//! **A roll-over** from generation `g` is done by one holder of the lock. It visits every line; it marks the numbers
//! that it finds there as (`g + 1`, kept); then **\[forget\]** invalidates all TLBs; then **\[begin\]** stores `g + 1`
//! in `generation`, releasing. During the roll-over, a CPU whose line has not been visited enters roots that have a tag
//! of `g`, and claims in `g`, as before. A CPU whose line has been visited waits for the end, and so does one that finds no
//! number while another CPU has the lock. It is the only wait, once in as many claims as there are numbers.
//!
//! **\[stay\]** The CPU that waits looks again and again ([`Platform::spin`]), and does nothing else. It must not sleep in
//! the platform: another thread would use its line meanwhile, and its own thread might go on elsewhere, with a number that
//! this CPU shows. Where interrupts are masked, they stay masked. So the time for which the lock is held is bounded: on bare
//! metal no holder is preempted, and a holder waits for no CPU. It takes one step for each line, one for each number that a
//! line shows, and invalidates once (`docs/instructions.md` has the counts).
//!
//! [`Platform::spin`]: mayfly_platform::Platform::spin
//!
//! **Why no number is active for two roots, or reused while a TLB still has translations of another root.** A number is
//! claimed in generation `g` by one root, since the claim is one compare-exchange, and only CPUs whose line is in `g`
//! activate that tag. If no line shows a number when visited, no line can show it under a tag of `g` any more, and no
//! CPU walks from its root (**\[vacate\]**). **\[forget\]** comes after the visits, so it leaves nothing of that number
//! in any TLB. The next claim of the number is made by a CPU that has acquired **\[begin\]**. If a line does show a
//! number, the number is marked before **\[begin\]**, so no other root claims it, however long the CPU has been idle.
//!
//! **To which root a kept number belongs.** Suppose that a root comes with the tag (`h`, `n`), and `n` is kept in
//! generation `g > h`. The number was the root's in `h`, and still is unless another root has claimed it since. So
//! roll-overs write down, for a number that they keep, in which generation it was claimed: `since`. The value stays the
//! same while the number is kept repeatedly. The number is the root's if `since <= h`: the present tenancy covers `h`.
//! A later tenant's claim came after the roll-over at which the root lost the number, so its `since` is above `h`. (Why
//! not compare tags, as Linux does? A root that runs on without an exit keeps a tag that is several roll-overs old,
//! while another of its vCPUs may have been given a newer one.)
//!
//! **Invalidation.** A caller that changes tables, and must know what the change leaves behind in TLBs, does this:
//!
//! - change the entries, **\[issue\]** `fence(SeqCst)`, load the root's tag ([`Vmids::assigned`]);
//!
//! and a CPU that changes its line does this:
//!
//! - load the tag or replace it, **\[enter\]** `fence(SeqCst)`, walk the tables.
//!
//! This is store buffering: either the issuer sees the tag under which the CPU goes in, or **\[issue\]** comes before
//! **\[enter\]**, and the CPU walks the changed tables (`litmus/S2+skip+enter`; on Arm **\[enter\]** is a DMB, and the
//! embedder's DSB comes before the walk). So the tag that the issuer loads is enough. If the tag is replaced
//! afterwards, by a first activation or after a roll-over, then CPUs that find the change replace it. If the tag is of
//! the present generation, or its number is kept and still the root's, the number has to be invalidated. Otherwise the
//! root lost the number at some roll-over that has begun its generation. Then the issuer has acquired that roll-over's
//! **\[begin\]**, or a claim or `since` written by a CPU that had, and **\[forget\]** has left nothing. A roll-over
//! under way is no exception: until **\[begin\]** the answer is the old number. An answer that is outdated when it is
//! used only costs another root some translations. (A CPU that activates again what its line shows has executed
//! **\[enter\]** since it read this tag: a line shows a number for one root until the number has left the line.)
//!
//! **The end.** A root is retired when no vCPU is on it or will be. First its number is removed from the lines that
//! still show it ([`Vmids::leave`]). For that, the platform has the CPUs of all these lines name no root, in one step for
//! all (**\[vacate\]**, [`Tlb::vacate_all`](mayfly_platform::tlb::Tlb::vacate_all)); and when all of them do, the number
//! goes from the lines. A line that shows it for this root then has shown it before, since no CPU activates the root any
//! more, and a number that is no longer this root's does not become so again. So each CPU whose line is cleared was asked.
//! (Between the look at a CPU's line and what is asked of it, that CPU may give up the number itself, and come to be on the
//! root to which a roll-over gives it. It names no root then, until that root is entered there again: its line shows it
//! still, and no other root has the number.)
//! Then everything under the number is invalidated. Then the number becomes free, by compare-exchange from the state in
//! which it is the root's, releasing; a claim acquires that. So no line shows a number that is free, or comes to show
//! the next root's number because it showed this one before. A line is cleared by compare-exchange from what it was
//! seen to show while the number was the root's. It shows the same again only for the same root, since the generation
//! is part of it. A roll-over that found a CPU which has left since may want to keep the number at the same moment,
//! also by compare-exchange. If that fails, the roll-over keeps nothing; if it succeeds, the number is freed from the
//! state that it left.
//!
//! **Another vCPU.** What a TLB holds under a number is of one root, and so of one VM, but perhaps of several of its
//! vCPUs. Their own tables (stage 1) need not agree on what an address or an ASID means. So a root remembers, for each
//! CPU, which vCPU was there last, and an activation says whether that was another one ([`Activated::flush`]). The
//! record is by root *and* CPU: suppose that the vCPUs A0, B0, A1 of two VMs come to one CPU in this order. Then the
//! CPU's last vCPU before A1 was B0, but the TLB also holds what A0 left. If no vCPU has been on a root on that CPU,
//! nothing of the root is there: its number was invalidated on all CPUs before it became the root's.
//!
//! **The same vCPU, elsewhere.** A guest's invalidation of its own tables may reach only the CPU on which it runs
//! ([`Format::GUEST_REACHES_ALL`](crate::Format::GUEST_REACHES_ALL)). So a vCPU that comes back to a CPU counts as
//! another one there, if it has been elsewhere meanwhile: its user gives it a [`VcpuMark`] for each stay on a CPU.
//!
//! `vmid.rs` and `vmid/root_tag.rs` import each other: a root's tag activates under the machine's VMIDs, and the VMIDs
//! make, renew and retire tags.

mod line;
mod numbers;
mod root_tag;
mod tag;

use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroU64;

use mayfly_platform::lock::Lock;
use mayfly_platform::memory::{OutOfMemory, Shared};
use mayfly_platform::observe::{Step, tell};
use mayfly_platform::sync::{AtomicU64, AtomicUsize, Ordering, fence};
use mayfly_platform::tlb::Vmid;
use mayfly_platform::{Mmu, Op};

pub use root_tag::{Activated, VmidTag};

use line::{Line, Lines};
use numbers::Numbers;
use tag::Tag;

/// The generation that everything starts in; a tag of generation 0 is of none.
const FIRST_GENERATION: u64 = 1;

/// Why there are no [`Vmids`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmidsError {
    /// VMIDs have 1 to 16 bits. Maps to `EINVAL`.
    #[error("VMIDs cannot have {bits} bits: 1 to 16 bits are possible")]
    Bits {
        /// As asked for.
        bits: u32,
    },
    /// There are more CPUs than VMIDs but 0, so that they could not all be in guests. Maps to `EINVAL`.
    #[error(
        "{cpus} CPUs need more VMIDs than {bits} bits give: each CPU needs one, and VMID 0 is the host's"
    )]
    Cpus {
        /// What [`Platform::cpus`](mayfly_platform::Platform::cpus) says.
        cpus: u32,
        /// As asked for.
        bits: u32,
    },
    /// There was no memory for the lines or the numbers. Maps to `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// A vCPU, as TLBs are concerned, or a stay of one on a CPU: no two of a machine's are the same, those that are gone
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VcpuMark(NonZeroU64);

/// The VMIDs of a machine, shared by all its VMs. Clones are the same VMIDs.
///
/// Takes 128 bytes a CPU, and 16 bytes a VMID, these in pieces of 256 as roots are made. VMID 0 is the host's and is
/// never given out.
#[derive(Clone)]
pub struct Vmids {
    shared: Shared<State>,
}

struct State {
    mmu: Arc<dyn Mmu>,
    /// What `mmu` says that its TLBs are.
    tlbs: usize,
    /// The present generation. Written by roll-overs, at their end.
    generation: AtomicU64,
    numbers: Numbers,
    lines: Lines,
    /// Held by the CPU that rolls over, from the first visit to the end.
    rollover: Lock<()>,
    /// Roots that there are.
    roots: AtomicUsize,
    /// The last [`VcpuMark`].
    vcpus: AtomicU64,
}

impl Vmids {
    /// All VMIDs of `bits` bits but 0, for the CPUs of `mmu`. No TLB may hold anything under them, and no CPU's
    /// translation base register name a root under one.
    ///
    /// # Errors
    ///
    /// [`VmidsError`].
    ///
    /// # Safety
    ///
    /// They are the machine's only ones, as long as they last: no other code gives out VMIDs of `mmu`'s CPUs. Otherwise
    /// two roots come to have one number, and the guest of one of them finds what TLBs hold of the other's.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use std::sync::Arc;
    /// use mayfly_platform::Mmu;
    ///
    /// fn second(mmu: Arc<dyn Mmu>) {
    ///     mayfly_stage2::Vmids::try_new(mmu, 8).unwrap();
    /// }
    /// ```
    pub unsafe fn try_new(mmu: Arc<dyn Mmu>, bits: u32) -> Result<Self, VmidsError> {
        if !(1..=16).contains(&bits) {
            return Err(VmidsError::Bits { bits });
        }
        let cpus = mmu.cpus();
        if cpus >= 1 << bits {
            return Err(VmidsError::Cpus { cpus, bits });
        }
        let numbers = Numbers::new(bits);
        numbers.reserve(cpus as usize)?;
        let shared = Shared::try_new(State {
            generation: AtomicU64::new(FIRST_GENERATION),
            numbers,
            lines: Lines::try_new(cpus, FIRST_GENERATION)?,
            rollover: Lock::new(()),
            roots: AtomicUsize::new(0),
            vcpus: AtomicU64::new(0),
            tlbs: mmu.tlbs(),
            mmu,
        })?;
        Ok(Self { shared })
    }

    /// Whether they are those of the CPUs of `mmu`.
    pub(crate) fn are_of(&self, mmu: &Arc<dyn Mmu>) -> bool {
        self.shared.tlbs == mmu.tlbs()
    }

    /// The tag of a root that no vCPU has entered. There is a number for it then, unless all are with others.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn tag(&self) -> Result<VmidTag, OutOfMemory> {
        let tag = VmidTag::try_new(self.clone(), self.shared.lines.count())?;
        let roots = self.shared.roots.load(Ordering::Relaxed);
        self.shared.numbers.reserve(roots)?;
        Ok(tag)
    }

    /// What tells a vCPU from all others.
    pub fn vcpu(&self) -> VcpuMark {
        // 2^64 are not made.
        VcpuMark(NonZeroU64::MIN.saturating_add(self.shared.vcpus.fetch_add(1, Ordering::Relaxed)))
    }

    /// The VMID under which TLBs may hold translations of `tag`'s root that were made before the caller changed its
    /// tables; `None` where none is left to invalidate.
    ///
    /// For a caller that has changed the tables, with plain stores or otherwise, and is about to invalidate: executes
    /// the full fence that this takes.
    pub fn assigned(&self, tag: &VmidTag) -> Option<Vmid> {
        // [issue]
        self.shared.observing(|| fence(Ordering::SeqCst), |()| Some(Step::Barrier));
        let tag = tag.load();
        // Acquire, pairing with [begin].
        let generation = self.shared.generation.load(Ordering::Acquire);
        let present = tag.generation() >= generation;
        tag.number().filter(|_| present || self.shared.numbers.is_kept(tag, generation))
    }

    /// Takes the VMID of `tag`'s root from every CPU whose translation base register still names the root: no vCPU is
    /// on it or will be, and afterwards no CPU walks from it, not even speculatively. To be called before what is under
    /// [`Vmids::assigned`] is invalidated a last time.
    ///
    /// # Safety
    ///
    /// No vCPU is in its guest on the root, or will be: its CPU would go on under a number that no line shows, and that
    /// a roll-over gives to another root.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_stage2::{VmidTag, Vmids};
    ///
    /// fn leave(vmids: &Vmids, tag: &VmidTag) {
    ///     vmids.leave(tag);
    /// }
    /// ```
    pub unsafe fn leave(&self, tag: &VmidTag) {
        let Some(number) = self.assigned(tag) else { return };
        let State { mmu, numbers, lines, .. } = &*self.shared;
        // As long as it is the root's, lines show it for this root alone.
        let shows = |line: &Line| line.shows(number).filter(|_| numbers.is_of(tag.load()));
        let mut named = lines.all().filter(|(_, line)| shows(line).is_some()).map(|(cpu, _)| cpu);
        mmu.vacate_all(&mut named, number);
        for (_, line) in lines.all() {
            while let Some(shown) = shows(line) {
                if line.clear(shown) {
                    break;
                }
            }
        }
    }

    /// Frees the VMID of `tag`'s root, which is no more: [`Vmids::leave`] has been called, and everything under
    /// [`Vmids::assigned`] has been invalidated since, and that completed. The tag is as new.
    ///
    /// # Safety
    ///
    /// That is so, and no vCPU is in its guest on the root, or will be: the number is given to the next root that asks,
    /// without an invalidation.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_stage2::{Format, Root, Vmids};
    ///
    /// fn under_a_guest<F: Format>(vmids: &Vmids, root: &Root<F>) {
    ///     vmids.retire(root.tag());
    /// }
    /// ```
    pub unsafe fn retire(&self, tag: &VmidTag) {
        self.shared.release(tag.take());
    }

    /// How often all VMIDs were given out, and a new generation begun.
    pub fn rollovers(&self) -> u64 {
        self.shared.generation.load(Ordering::Relaxed) - FIRST_GENERATION
    }

    /// Takes one step towards a tag of `generation` for the root whose tag was `old`: the caller, whose line shows no
    /// number, looks again.
    #[cold]
    fn renew(&self, generation: u64, tag: &VmidTag, old: Tag) {
        let State { numbers, .. } = &*self.shared;
        // Acquire, pairing with [begin].
        if self.shared.generation.load(Ordering::Acquire) != generation {
            // The caller's line was visited by a roll-over that is not over yet, or has been by now. [stay]
            self.shared.mmu.spin();
            return;
        }
        if let Some(number) = old.number()
            && numbers.is_kept(old, generation)
        {
            tag.replace(old, Tag::new(generation, number));
            return;
        }
        let taken = |number: &Option<Vmid>| number.map(|vmid| Step::VmidTaken { vmid, generation });
        let Some(number) = self.shared.observing(|| numbers.claim(generation), taken) else {
            self.roll_over(generation);
            return;
        };
        let new = Tag::new(generation, number);
        if !tag.replace(old, new) {
            self.shared.release(new);
        }
    }

    /// Ends `generation`, unless another CPU has.
    fn roll_over(&self, generation: u64) {
        let State { mmu, numbers, lines, rollover, .. } = &*self.shared;
        let Some(_rollover) = rollover.try_lock(&**mmu) else {
            // [stay]
            return mmu.spin();
        };
        if self.shared.generation.load(Ordering::Relaxed) != generation {
            return;
        }
        let next = generation + 1;
        for vmid in lines.all().filter_map(|(_, line)| line.next_generation()) {
            let step = Step::VmidKept { vmid, generation: next };
            let keep = || numbers.keep(vmid, generation);
            self.shared.observing(keep, |kept| kept.then_some(step));
        }
        // [forget]
        mmu.charge(Op::TlbInvalidation);
        mmu.invalidate_all_vmids();
        // [begin]
        let begin = || self.shared.generation.store(next, Ordering::Release);
        self.shared.observing(begin, |()| Some(Step::Generation { generation: next }));
    }
}

impl State {
    /// Frees the number of `tag`, if the root that it was of has it still.
    fn release(&self, tag: Tag) {
        let given = |given: &Option<Vmid>| given.map(|vmid| Step::VmidGiven { vmid });
        self.observing(|| self.numbers.release(tag), given);
    }

    /// Makes a step, and tells the platform what `step` says that it was, if it is to be told.
    fn observing<T>(&self, act: impl FnOnce() -> T, step: impl FnOnce(&T) -> Option<Step>) -> T {
        let Some(observer) = self.mmu.observer() else { return act() };
        tell(observer, || {
            let outcome = act();
            let step = step(&outcome);
            (outcome, step)
        })
    }
}

impl fmt::Debug for Vmids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vmids")
            .field("count", &self.shared.numbers.count())
            .field("rollovers", &self.rollovers())
            .finish_non_exhaustive()
    }
}
