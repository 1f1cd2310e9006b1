//! The share that a VM, or its disk, has of the machine's memory ([`account`](mayfly_hypervisor::account)), and what
//! happens when memory ends.
//!
//! A thread that gets no frame is of a VM that is above its guarantee, or would be. It asks for the share that is
//! furthest above. If that is its own, its VM is ended. Otherwise it has the other VM ended, and waits until it gets a
//! frame ([`shortage`](mayfly_hypervisor::shortage)). It waits in [`Share::wait_for_frame`], and neither in the core nor with a lock that the other VM needs, so
//! that the other VM comes to its end. A VM that waits and is itself ended meanwhile waits no longer.

use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mayfly_hypervisor::account::{Refused, ShareId};
use mayfly_hypervisor::needs::{CHUNK_BYTES, MOST_SHARES};
use mayfly_hypervisor::shortage::{Asker, Next};

use crate::bare::processor::heap::Guaranteed;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::{frames, timer};
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Account};

/// What is ended when its share is the furthest above its guarantee.
pub(crate) trait Ends: Send + Sync {
    /// Ends it. Returns at once.
    fn end(&self);

    /// Whether it ends for good, for whatever reason. What is to be frozen does not: it waits for a frame as before.
    fn is_ending(&self) -> bool;
}

/// A share of the machine's memory. Dropped, it leaves the account, and is gone when all of it is given back.
pub(crate) struct Share {
    id: ShareId,
    /// What is charged for the time in which its frames are freed: that of its VM.
    account: Arc<Account>,
    /// It was the furthest above its guarantee when memory ended.
    is_ended: AtomicBool,
    run: SpinLock<Option<Arc<dyn Ends>>>,
    /// The heap that is guaranteed with it.
    _heap: Guaranteed,
}

/// The shares that there are.
static SHARES: SpinLock<[Option<Weak<Share>>; MOST_SHARES]> =
    SpinLock::new([const { None }; MOST_SHARES]);

impl Share {
    /// A share of the VM whose processor time is of `account`, that is guaranteed so many chunks, and bytes of heap. It is to
    /// be made [active](Share::activate).
    ///
    /// # Errors
    ///
    /// Why its guarantee cannot be kept.
    pub(crate) fn admit(
        account: &Arc<Account>,
        chunks: u64,
        heap: u64,
    ) -> Result<Arc<Self>, String> {
        let heap = heap as usize;
        let no_heap =
            |left| format!("it needs {} KiB of heap, and {} are left", heap >> 10, left >> 10);
        let heap = Guaranteed::try_new(heap).map_err(no_heap)?;
        let id = frames::admit(chunks).map_err(|refused| match refused {
            Refused::Guarantee { .. } => "there is too little memory",
            Refused::TooMany => "there are too many VMs",
        })?;
        let (is_ended, run) = (AtomicBool::new(false), SpinLock::new(None));
        let account = Arc::clone(account);
        let share = Arc::new(Self { id, account, is_ended, run, _heap: heap });
        SHARES.lock()[id.index()] = Some(Arc::downgrade(&share));
        Ok(share)
    }

    /// What the processor time of its VM is charged to.
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Its number in the account.
    pub(crate) fn id(&self) -> ShareId {
        self.id
    }

    /// Makes it active. If others have borrowed what it is guaranteed, ends the one that is furthest above its own
    /// guarantee, and returns false: to be called again, until that has given back what it had.
    pub(crate) fn activate(&self) -> bool {
        let is_active = self.try_activate();
        if !is_active && let Some(id) = frames::choose(self.id) {
            end(id);
        }
        is_active
    }

    /// Makes it active, if nobody has borrowed what it is guaranteed.
    pub(crate) fn try_activate(&self) -> bool {
        frames::activate(self.id)
    }

    /// Has it guaranteed exactly what it uses, since its VM runs no more and keeps it: then it is never above that. Returns
    /// whether that can be guaranteed.
    pub(crate) fn keep(&self) -> bool {
        frames::keep(self.id)
    }

    /// Has it guaranteed so many chunks more than it uses. Returns whether that can be guaranteed, and nobody has borrowed it.
    pub(crate) fn allow(&self, chunks: u64) -> bool {
        frames::allow(self.id, chunks)
    }

    /// Chunks that it uses.
    pub(crate) fn used(&self) -> u64 {
        frames::account(|account| account.used(self.id)).unwrap_or(0)
    }

    /// Chunks that it uses above its guarantee.
    pub(crate) fn above(&self) -> u64 {
        frames::account(|account| account.above(self.id)).unwrap_or(0)
    }

    /// Sets what is ended with it: at once if memory has ended meanwhile.
    pub(crate) fn set_run(&self, run: Option<Arc<dyn Ends>>) {
        let before = core::mem::replace(&mut *self.run.lock(), run.clone());
        drop(before);
        if let Some(run) = run.filter(|_| self.is_ended()) {
            run.end();
        }
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Waits until it gets a frame, and ends the VM that is furthest above its guarantee for that. Returns whether it
    /// gets one: not if its own VM is that one, or ends for another reason.
    pub(crate) fn wait_for_frame(&self) -> bool {
        loop {
            let is_ending = self.run.lock().as_ref().is_some_and(|run| run.is_ending());
            let asker = Asker { share: self.id, was_chosen: self.is_ended(), is_ending };
            match frames::next(asker) {
                Next::Again => return true,
                Next::Over => return false,
                Next::Wait(chosen) => {
                    chosen.into_iter().for_each(end);
                    if !self.is_ended() {
                        pause();
                    }
                }
            }
        }
    }

    fn end(&self) {
        if self.is_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        let mib = |chunks: u64| (chunks * CHUNK_BYTES) >> 20;
        let (used, above) = (mib(self.used()), mib(self.above()));
        say!(
            "mayfly: memory has ended: {} has {used} MiB, {above} MiB above its guarantee",
            self.account.vm().unwrap_or_default()
        );
        let run = self.run.lock().clone();
        if let Some(run) = run {
            run.end();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Before its number may be another's.
        let this = SHARES.lock()[self.id.index()].take();
        drop(this);
        frames::leave(self.id);
    }
}

/// Whether so many chunks can be guaranteed.
///
/// # Errors
///
/// With figures, if not.
pub(crate) fn check(chunks: u64) -> Result<(), String> {
    let mib = |chunks: u64| (chunks * CHUNK_BYTES) >> 20;
    let (left, total) = frames::account(|all| (all.left(), all.total())).unwrap_or((0, 0));
    if chunks <= left {
        return Ok(());
    }
    let (left, total) = (mib(left), mib(total));
    Err(format!("of {total} MiB, {left} are neither used nor guaranteed to others"))
}

/// Ends the VM of a share. One that is leaving is ended already.
fn end(id: ShareId) {
    let share = SHARES.lock()[id.index()].as_ref().and_then(Weak::upgrade);
    if let Some(share) = share {
        share.end();
    }
}

/// Lets others work for a millisecond.
pub(crate) fn pause() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    threads::wait(&NEVER, 0, timer::ticks() + timer::frequency() / 1000);
}
