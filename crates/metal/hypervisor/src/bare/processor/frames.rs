//! The machine's frames.

use mayfly_hwtrace::Event;
use mayfly_hypervisor::account::{Account, Refused, ShareId};
use mayfly_hypervisor::chunks::Chunks;
use mayfly_hypervisor::shortage::{Asker, Next};
use mayfly_vm::platform::address::Pfn;

use super::spin::SpinLock;
use super::{trace, zero};

static FRAMES: SpinLock<Option<Chunks<'static>>> = SpinLock::new(None);

/// Sets which frames the machine has. Once.
pub(crate) fn set(machine: Chunks<'static>) {
    *FRAMES.lock() = Some(machine);
}

/// How many frames are free.
pub(crate) fn count_free() -> u64 {
    FRAMES.lock().as_ref().map_or(0, Chunks::free_frames)
}

/// What each share of the machine has, in chunks.
pub(crate) fn account<T>(read: impl FnOnce(&Account<'_>) -> T) -> Option<T> {
    FRAMES.lock().as_ref().map(|machine| read(machine.account()))
}

/// As [`Chunks::admit`].
pub(crate) fn admit(chunks: u64) -> Result<ShareId, Refused> {
    let none = Refused::Guarantee { wanted: chunks, left: 0 };
    FRAMES.lock().as_mut().map_or(Err(none), |machine| machine.admit(chunks))
}

/// As [`Chunks::activate`].
pub(crate) fn activate(share: ShareId) -> bool {
    FRAMES.lock().as_mut().is_some_and(|machine| machine.activate(share))
}

/// As [`Chunks::keep`].
pub(crate) fn keep(share: ShareId) -> bool {
    FRAMES.lock().as_mut().is_some_and(|machine| machine.keep(share))
}

/// As [`Chunks::allow`].
pub(crate) fn allow(share: ShareId, chunks: u64) -> bool {
    FRAMES.lock().as_mut().is_some_and(|machine| machine.allow(share, chunks))
}

/// As [`Chunks::leave`].
pub(crate) fn leave(share: ShareId) {
    if let Some(machine) = FRAMES.lock().as_mut() {
        machine.leave(share);
    }
}

/// As [`Chunks::choose`].
pub(crate) fn choose(share: ShareId) -> Option<ShareId> {
    FRAMES.lock().as_mut().and_then(|machine| machine.choose(share))
}

/// What a thread does next that has got no frame.
pub(crate) fn next(asker: Asker) -> Next {
    FRAMES.lock().as_mut().map_or(Next::Over, |machine| asker.next(machine))
}

/// `1 << order` frames of zeroes, for a share. `look` is called after every eight of them that are cleared: interrupts
/// are masked here.
#[inline]
pub(crate) fn allocate(share: ShareId, order: u32, look: impl Fn()) -> Option<Pfn> {
    const PART: u64 = 8;
    let first = take(share, order)?.get();
    let end = first + (1 << order);
    for part in (first..end).step_by(PART as usize) {
        // SAFETY: the frames are the caller's alone, and mapped.
        unsafe { zero::frames(Pfn::new(part), (end - part).min(PART)) };
        look();
    }
    trace::note(|| Event::Give { frame: first, order });
    Some(Pfn::new(first))
}

/// Fills `frames` with single frames for a share, with whatever is in them. Returns whether there are as many: if not, none is
/// given.
pub(crate) fn allocate_all_as_is(share: ShareId, frames: &mut [u64]) -> bool {
    let given = FRAMES.lock().as_mut().is_some_and(|machine| machine.allocate_all(share, frames));
    if given {
        for &frame in &*frames {
            trace::note(|| Event::Give { frame, order: 0 });
        }
    }
    given
}

/// `1 << order` frames for a share, with whatever is in them: no guest is to read them before they are written.
#[inline]
pub(crate) fn allocate_as_is(share: ShareId, order: u32) -> Option<Pfn> {
    let first = take(share, order)?;
    trace::note(|| Event::Give { frame: first.get(), order });
    Some(first)
}

#[inline]
fn take(share: ShareId, order: u32) -> Option<Pfn> {
    FRAMES.lock().as_mut()?.allocate(share, order as usize).map(Pfn::new)
}

/// Takes frames back.
///
/// # Safety
///
/// They were given for that order, and nothing uses them any more.
pub(crate) unsafe fn free(first: Pfn, order: u32) {
    // Before another caller can be given them.
    trace::note(|| Event::Free { frame: first.get(), order });
    let taken =
        FRAMES.lock().as_mut().is_some_and(|machine| machine.free(first.get(), order as usize));
    debug_assert!(taken, "frames are given back as they were given");
}

/// As [`Chunks::given_around`].
pub(crate) fn given_around(frame: Pfn) -> Option<u32> {
    FRAMES.lock().as_ref()?.given_around(frame.get())
}

/// Has a block of `1 << order` frames be single frames, each of which is taken back alone. It was given for that order, which
/// is that of a chunk at least.
pub(crate) fn part(first: Pfn, order: u32) {
    let is_parted =
        FRAMES.lock().as_mut().is_some_and(|machine| machine.part(first.get(), order as usize));
    debug_assert!(is_parted, "blocks are parted as they were given");
}

/// Takes single frames back: few enough that interrupts can be masked for so long.
///
/// # Safety
///
/// As [`free`], of each.
pub(crate) unsafe fn free_all(frames: &[u64]) {
    for &frame in frames {
        trace::note(|| Event::Free { frame, order: 0 });
    }
    let taken = FRAMES.lock().as_mut().map_or(0, |machine| machine.free_all(frames));
    debug_assert!(taken == frames.len() as u64, "frames are given back as they were given");
}
