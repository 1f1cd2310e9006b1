//! VMIDs for more roots than there are.
//!
//! A root's translations are tagged with its VMID, a number of 8 or 16 bits on Arm (`ID_AA64MMFR1_EL1.VMIDBits`) and of
//! up to 14 on RISC-V (`hgatp`). A number is a root's own for a *generation*. When all are given out, a *roll-over*
//! begins the next one: numbers that vCPUs are active under stay with their roots, every TLB is invalidated once, and
//! the other roots get new numbers when they are next entered. (The scheme is that of Linux, `arch/arm64/mm/context.c`
//! and `arch/arm64/kvm/vmid.c`, from which the protocol differs.)
//!
//! # The protocol
//!
//! **Tags.** A tag is a generation (48 bits) and a number (16 bits). A root keeps its latest in its [`VmidTag`]: it
//! says that the number was the root's in that generation. Tags of a root only grow; they are replaced by
//! compare-exchange, so that vCPUs which enter a root at the same time agree on one.
//!
//! **Lines.** A vCPU's line, written by itself and by roll-overs, holds the generation that it is in, and the number
//! that it is active under, or 0. To *activate* a root whose tag is of the line's generation, the vCPU replaces its
//! line, as it read it before, by that tag. To *deactivate* it clears the number. A roll-over adds one to the line's
//! generation, and leaves the number. Each is one atomic step on one word, so a roll-over either finds a vCPU active,
//! or moves its line first; then the vCPU's exchange fails, and tags of the generation that ended fit its line no more.
//! No barrier is needed for that, and a vCPU that activates again what its line shows writes nothing.
//!
//! **Numbers.** Of each number is known in which generation it was last held, and whether it was *kept* through the
//! roll-over that began it. A number that was last held in an earlier generation is free. It is *claimed* by
//! compare-exchange from such a state to (present generation, claimed): there is nothing to clear at a roll-over, and a
//! claim that was delayed past one finds the number held in the new generation, or claims it in one that is over, where
//! it is worth nothing. Whoever claims a number, and finds that another vCPU has given the root one meanwhile, gives
//! his back, never used.
//!
//! **A roll-over** from generation `g` is one holder of the lock's: it visits every line; marks the numbers it finds
//! there as (`g + 1`, kept); then **[forget]** invalidates all TLBs; then **[begin]** stores `g + 1` in `generation`,
//! releasing. While it lasts, a vCPU whose line has not been visited enters what has a tag of `g`, and claims in `g`,
//! as before. One whose line has been visited waits, asleep on the lock, for the end: it is the only wait, once in as
//! many claims as there are numbers.
//!
//! **Why no number is active for two roots, nor reused with translations of another left in a TLB.** A number is
//! claimed in generation `g` by one root, since the claim is one compare-exchange, and only vCPUs whose line is in `g`
//! enter with that tag. What is not active when visited cannot become so under a tag of `g` any more, and **[forget]**
//! comes after the visits, so it leaves nothing of it in any TLB; the number is claimed again by who has acquired
//! **[begin]**. What is active is marked before **[begin]**, so nobody else claims it.
//!
//! **Whose a kept number is.** A root comes with the tag (`h`, `n`), and `n` is kept in generation `g > h`. It was the
//! root's in `h`, and still is unless somebody claimed it since. Roll-overs therefore write down in which generation a
//! number they keep was claimed, `since`; it stays as it is while the number is kept over and over. The number is the
//! root's if `since <= h`: the present tenancy covers `h`. A later tenant's claim came after the roll-over at which the
//! root lost the number, so its `since` is above `h`. (Why not compare tags, as Linux does? A root that runs on without
//! an exit keeps a tag several roll-overs old, while another of its vCPUs may have been given a newer one.)
//!
//! **Invalidation.** Whoever changes tables, and must know what the change leaves behind in TLBs, does:
//!
//! - change the entries, **[issue]** `fence(SeqCst)`, load the root's tag ([`Vmids::assigned`]);
//!
//! and a vCPU that changes its line does:
//!
//! - load the tag or replace it, **[enter]** `fence(SeqCst)`, walk the tables.
//!
//! This is store buffering: either the issuer sees the tag that the vCPU goes in under, or **[issue]** comes before
//! **[enter]**, and the vCPU walks the changed tables (`litmus/S2+skip+enter`; on Arm **[enter]** is a DMB, and the
//! embedder's DSB comes before the walk). So the tag that the issuer loads is enough. Should it be
//! replaced afterwards, by a first activation or after a roll-over, then by vCPUs that find the change. If it is of the
//! present generation, or its number is kept and still the root's, the number is to be invalidated. Otherwise the root
//! lost the number at some roll-over that has begun its generation: the issuer has acquired its **[begin]**, or a claim
//! or `since` written by who had, and **[forget]** has left nothing. A roll-over under way is no exception: until
//! **[begin]** the answer is the old number. An answer that is outdated when it is used costs another root some
//! translations, no more. (A vCPU that activates again what its line shows has executed **[enter]** since it read this
//! tag.)
//!
//! **The end.** A root is retired when no vCPU is active on it or will be, and what was under its number is
//! invalidated. Its number becomes free by compare-exchange from the state in which it is the root's, releasing; a
//! claim acquires that. A roll-over that found a vCPU which has left since may want to keep the number at the same
//! moment, also by compare-exchange. If that fails, it keeps nothing; if it succeeds, the number is freed from the
//! state that it left.

mod active;
mod numbers;
mod tag;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use mayfly_platform::lock::Lock;
use mayfly_platform::memory::{OutOfMemory, Shared};
use mayfly_platform::observe::{Step, tell};
use mayfly_platform::sync::{AtomicU64, Ordering, fence};
use mayfly_platform::tlb::Vmid;
use mayfly_platform::{Mmu, Op};

pub use active::ActiveVmid;
pub use tag::VmidTag;

use active::Record;
use numbers::Numbers;
use tag::Tag;

/// The generation that everything starts in; a tag of generation 0 is of none.
const FIRST_GENERATION: u64 = 1;

/// Why there are no [`Vmids`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmidsError {
    /// VMIDs have 1 to 16 bits. Maps to `EINVAL`.
    #[error("VMIDs of {bits} bits, where 1 to 16 are possible")]
    Bits {
        /// As asked for.
        bits: u32,
    },
    /// There was no memory for the numbers. Maps to `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Every VMID has a vCPU active under it, and each for another root. Maps to `EAGAIN`: try again when one has left.
///
/// Cannot happen while fewer vCPUs are active than there are VMIDs (2^bits - 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every VMID is in use by a running vCPU")]
pub struct AllVmidsActive;

/// The VMIDs of a machine, shared by all its VMs. Clones are the same VMIDs.
///
/// Takes 16 bytes a VMID. VMID 0 is the host's and is never given out. A root's [`VmidTag`] belongs to the one `Vmids`
/// that it was first used with.
#[derive(Clone)]
pub struct Vmids {
    shared: Shared<State>,
}

struct State {
    mmu: Arc<dyn Mmu>,
    /// The present generation. Written by roll-overs, at their end.
    generation: AtomicU64,
    numbers: Numbers,
    /// Every vCPU's line. The list only grows; a record whose vCPU is gone is leased to the next one. Locked by a
    /// roll-over until it is over, and while a vCPU is registered.
    records: Lock<Vec<Shared<Record>>>,
}

impl Vmids {
    /// All VMIDs of `bits` bits but 0. No TLB may hold anything under them.
    ///
    /// # Errors
    ///
    /// [`VmidsError`].
    pub fn try_new(mmu: Arc<dyn Mmu>, bits: u32) -> Result<Self, VmidsError> {
        if !(1..=16).contains(&bits) {
            return Err(VmidsError::Bits { bits });
        }
        let shared = Shared::try_new(State {
            mmu,
            generation: AtomicU64::new(FIRST_GENERATION),
            numbers: Numbers::try_new(bits)?,
            records: Lock::new(Vec::new()),
        })?;
        Ok(Self { shared })
    }

    /// A vCPU's right to be active under a VMID. Waits for a roll-over under way.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn register(&self) -> Result<ActiveVmid, OutOfMemory> {
        let mut records = self.shared.records.lock(&*self.shared.mmu);
        let record = if let Some(free) = records.iter().find(|record| record.lease()) {
            free.clone()
        } else {
            records.try_reserve(1)?;
            let generation = self.shared.generation.load(Ordering::Relaxed);
            let record = Shared::try_new(Record::leased(generation))?;
            records.push(record.clone());
            record
        };
        drop(records);
        Ok(ActiveVmid::new(self.clone(), record))
    }

    /// The VMID under which TLBs may hold translations of `tag`'s root that were made before the caller changed its
    /// tables; `None` where none is left to invalidate.
    ///
    /// For whoever has changed the tables, with plain stores or otherwise, and is about to invalidate: executes the
    /// full fence that this takes.
    pub fn assigned(&self, tag: &VmidTag) -> Option<Vmid> {
        // [issue]
        self.shared.observing(|| fence(Ordering::SeqCst), |()| Some(Step::Barrier));
        let tag = tag.load();
        // Acquire, pairing with [begin].
        let generation = self.shared.generation.load(Ordering::Acquire);
        let present = tag.generation() >= generation;
        tag.number().filter(|_| present || self.shared.numbers.is_kept(tag, generation))
    }

    /// Frees the VMID of `tag`'s root, which is no more: no vCPU is active on it or will be, and everything under
    /// [`Vmids::assigned`] has been invalidated, and that completed. The tag is as new.
    pub fn retire(&self, tag: &VmidTag) {
        self.shared.release(tag.take());
    }

    /// How often all VMIDs were given out, and a new generation begun.
    pub fn rollovers(&self) -> u64 {
        self.shared.generation.load(Ordering::Relaxed) - FIRST_GENERATION
    }

    /// Takes one step towards a tag of `generation` for the root whose tag was `old`: the caller looks again.
    #[cold]
    fn renew(&self, generation: u64, tag: &VmidTag, old: Tag) -> Result<(), AllVmidsActive> {
        let State { mmu, numbers, records, .. } = &*self.shared;
        // Acquire, pairing with [begin].
        if self.shared.generation.load(Ordering::Acquire) != generation {
            // The caller's line was visited by a roll-over that is not over yet, or has been by now.
            drop(records.lock(&**mmu));
            return Ok(());
        }
        if let Some(number) = old.number()
            && numbers.is_kept(old, generation)
        {
            tag.replace(old, Tag::new(generation, number));
            return Ok(());
        }
        let taken = |number: &Option<Vmid>| number.map(|vmid| Step::VmidTaken { vmid, generation });
        let Some(number) = self.shared.observing(|| numbers.claim(generation), taken) else {
            return self.roll_over(generation);
        };
        let new = Tag::new(generation, number);
        if !tag.replace(old, new) {
            self.shared.release(new);
        }
        Ok(())
    }

    /// Ends `generation`, unless somebody has.
    fn roll_over(&self, generation: u64) -> Result<(), AllVmidsActive> {
        let State { mmu, numbers, records, .. } = &*self.shared;
        let records = records.lock(&**mmu);
        if self.shared.generation.load(Ordering::Relaxed) != generation {
            return Ok(());
        }
        let active = records.iter().filter_map(|record| record.line().next_generation());
        let next = generation + 1;
        let keep = |vmid: &Vmid| {
            let step = Step::VmidKept { vmid: *vmid, generation: next };
            self.shared.observing(|| numbers.keep(*vmid, generation), |kept| kept.then_some(step))
        };
        let kept = active.filter(keep).count();
        let some_are_free = kept < numbers.count();
        if some_are_free {
            // [forget]
            mmu.charge(Op::TlbInvalidation);
            mmu.invalidate_all_vmids();
        }
        // [begin]
        let begin = || self.shared.generation.store(next, Ordering::Release);
        self.shared.observing(begin, |()| Some(Step::Generation { generation: next }));
        if some_are_free { Ok(()) } else { Err(AllVmidsActive) }
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
