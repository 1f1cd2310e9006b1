//! The merger: has pages of VMs of one group that hold the same share a frame ([`mayfly_merge`]).
//!
//! A run of a VM with `merge=GROUP` [joins](join) when its guest begins, and leaves before its memory goes. The merger has one
//! thread, which looks at one page at a time, and rests so long that it takes no more than its part of a processor. It is of an
//! account of its own, of the weight of a VM.
//!
//! *Whose the frames are.* The frames that a group shares are of a share of their own, which is guaranteed what it uses. So it is
//! never above its guarantee, nobody is ended for them, and they are there for as long as anybody has them. A VM keeps its
//! guarantee, whatever it shares: what it frees within that is lent to nobody, and it gets a frame when it writes to a page.
//!
//! *Who waits for whom.* What the merger knows is under one lock, which is held for a look at one page. The thread of a VM takes it to
//! join, to leave, and to have its memory to itself for a moment ([`Member::hold`]): where it becomes an image, or goes back to one.
//! A vCPU never takes it. The merger takes the lock of a memory inside of it, and waits for TLBs and for moments alone there.

mod group;
mod pages;
mod thread;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::plan::Plan;
use mayfly_merge::{Merger, Sums};
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::platform::lock::Lock;
use mayfly_vm::platform::memory::OutOfMemory;

use super::entropy;
use super::memory::{GuestMemory, Packing};
use super::platform::World;
use crate::bare::processor::once::Once;
use crate::bare::threads::{self, Account, Name};
use group::Groups;
use pages::{Joined, Pages, first_page};

/// Hundredths of a processor that the merger takes at most, if nobody says more.
const PART: u32 = 5;

struct All {
    world: Arc<World>,
    state: Lock<State>,
    sums: Sums,
    account: Arc<Account>,
    /// How many runs have joined, for the thread to wait for.
    joined: AtomicU32,
    part: AtomicU32,
}

static ALL: Once<All> = Once::new();

/// What the merger knows.
#[derive(Default)]
struct State {
    merger: Merger,
    /// By number; of those that have left, nothing.
    joined: Vec<Option<Joined>>,
    groups: Groups,
    /// Whose pages are moved next.
    packs: usize,
}

impl State {
    /// What it knows, and whose pages those are.
    fn split<'a>(&'a mut self, sums: &'a Sums) -> (&'a mut Merger, Pages<'a>) {
        let Self { merger, joined, groups, .. } = self;
        (merger, Pages { joined, groups, sums })
    }

    /// Frees the frames that nobody shares any more.
    fn tidy(&mut self, sums: &Sums) {
        let (merger, pages) = self.split(sums);
        merger.prune(&pages);
        self.groups.tidy();
    }

    /// Moves some pages of one that has joined to chunks that are used as a whole.
    fn pack(&mut self) {
        self.packs = (self.packs + 1) % self.joined.len().max(1);
        let joined = self.joined.get_mut(self.packs).and_then(Option::as_mut);
        if let Some(joined) = joined.filter(|joined| !joined.is_held) {
            joined.memory.pack(&mut joined.packing);
        }
    }

    fn has_members(&self) -> bool {
        self.joined.iter().any(Option::is_some)
    }
}

/// Starts the thread. Once.
///
/// # Errors
///
/// [`OutOfMemory`].
pub(crate) fn start() -> Result<(), OutOfMemory> {
    let sums = Sums::try_new(|| {
        threads::interrupts::look();
        u64::from_le_bytes(entropy::number())
    })?;
    ALL.set(All {
        world: World::new(),
        state: Lock::new(State::default()),
        sums,
        account: Account::apart(),
        joined: AtomicU32::new(0),
        part: AtomicU32::new(PART),
    });
    let Some(all) = ALL.get() else { return Err(OutOfMemory) };
    threads::spawn_for(Name::new("the merger"), &all.account, || thread::main(all))
}

/// Sets the part of a processor that the merger takes at most, if there is one, in hundredths; says what it is.
pub(crate) fn set_part(hundredths: Option<u32>) -> u32 {
    let Some(all) = ALL.get() else { return 0 };
    if let Some(hundredths) = hundredths {
        all.part.store(hundredths, Ordering::Relaxed);
        // It may be resting for long.
        all.joined.fetch_add(1, Ordering::Release);
        threads::wake(&all.joined);
    }
    all.part.load(Ordering::Relaxed)
}

/// A run that has joined. It leaves when this is dropped.
pub(crate) struct Member {
    all: &'static All,
    number: usize,
}

/// Has the pages of `memory` be merged with those of the group of `plan`, if it has one.
///
/// # Errors
///
/// Why they are not.
pub(crate) fn join(plan: &Plan, memory: &Arc<GuestMemory>) -> Result<Option<Member>, String> {
    let (Some(name), Some(all)) = (&plan.merge, ALL.get()) else { return Ok(None) };
    let no_room = |_| format!("there is no memory for what the merger knows of group {name}");
    let mut state = all.state.lock(&*all.world);
    let number = free_number(&mut state.joined).map_err(no_room)?;
    let group = state.groups.join(name, &all.account).map_err(no_room)?;
    state.joined[number] = Some(Joined {
        memory: Arc::clone(memory),
        group,
        packing: Packing::default(),
        is_held: false,
    });
    let first = first_page(number);
    let (merger, pages) = state.split(&all.sums);
    let range = first..first + memory.bytes() / PAGE_SIZE;
    let registered = merger.register(&pages, group, range);
    drop(state);
    // From now on it leaves when it is dropped.
    let member = Member { all, number };
    registered.map_err(no_room)?;
    all.joined.fetch_add(1, Ordering::Release);
    threads::wake(&all.joined);
    Ok(Some(member))
}

fn free_number(joined: &mut Vec<Option<Joined>>) -> Result<usize, OutOfMemory> {
    if let Some(number) = joined.iter().position(Option::is_none) {
        return Ok(number);
    }
    joined.try_reserve(1).map_err(|_| OutOfMemory)?;
    joined.push(None);
    Ok(joined.len() - 1)
}

impl Member {
    /// Has the merger use nothing of its memory until what this returns is dropped: it does not when this returns.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.set_held(true);
        Held(self)
    }

    fn set_held(&self, is_held: bool) {
        let mut state = self.all.state.lock(&*self.all.world);
        if let Some(joined) = state.joined[self.number].as_mut() {
            joined.is_held = is_held;
        }
    }
}

/// The merger uses nothing of a memory until this is dropped. Where it is [forgotten](core::mem::forget), it does not until the
/// run has left.
pub(crate) struct Held<'a>(&'a Member);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set_held(false);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.all.state.lock(&*self.all.world);
        let first = first_page(self.number);
        let (merger, pages) = state.split(&self.all.sums);
        // All that was registered at once: no range is parted, for which memory may be missing.
        let _ = merger.unregister(&pages, &(first..first_page(self.number + 1)));
        let left = state.joined[self.number].take();
        if let Some(Joined { group, .. }) = &left {
            state.groups.leave(*group);
        }
        let mut last = None;
        if !state.has_members() {
            // What pages still share stays as long as they do.
            let (merger, pages) = state.split(&self.all.sums);
            merger.give_up(&pages);
            last = Some(core::mem::take(&mut *state));
        }
        drop(state);
        drop((left, last));
    }
}
