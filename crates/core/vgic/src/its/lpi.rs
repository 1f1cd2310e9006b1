//! LPIs: the redistributors' part of them, and the tables in the guest's memory that say what they are (Arm IHI 0069,
//! chapter 5).
//!
//! The word of an LPI has its enable, its priority, whether it is pending, and where: at one redistributor. The guest's
//! table of properties is read into the words when the guest says so (`INV`, `INVALL`), when an event is mapped, and when
//! a redistributor's LPIs are turned on.
//!
//! A register write only notes what is to be done with a table. The thread that calls
//! [`serve_its`](crate::Vgic::serve_its) does it, one redistributor after the other:
//!
//! | state | what it means | who leaves it |
//! | --- | --- | --- |
//! | off | LPIs that come are dropped | the guest, to *starting* |
//! | starting | the tables are to be read; LPIs are taken | the thread, to *on*; the guest, to *stopping unread* |
//! | on | LPIs are taken | the guest, to *stopping* |
//! | stopping | what is pending is to be written to the guest's table; LPIs are dropped, and `RWP` is one | the thread, to *off* |
//! | stopping unread | the same, beside what is in the table, of which some was not read | the thread, to *off* |
//!
//! A party that makes an LPI pending looks at the state after that, and takes the LPI back if it is to be dropped. The
//! thread that stops looks at the LPIs after the state was changed. Each passes a sequentially consistent fence between
//! the two, so one of both sees the other: no LPI stays pending at a redistributor that is off. A party that finds the LPI
//! pending there, or changes nothing, takes nothing back: it was pending before the redistributor stopped, and the thread
//! writes it to the table; or another party has made it pending, and takes it back.

use mayfly_platform::sync::{Ordering, fence};

use super::tables::Its;
use crate::state::{FIRST_LPI, State};
use crate::{Kick, PART, Vgic, affinity};

/// `GICR_PROPBASER`: cacheability, address, shareability, and how many bits a number has, less one.
pub(crate) const PROPBASER: u64 = 7 << 56 | 0xf_ffff_ffff << 12 | 0x1f << 7 | 0x1f;
/// `GICR_PENDBASER`: the same without a number, and whether the table is known to be zero.
pub(crate) const PENDBASER: u64 =
    PENDBASER_ZERO | 7 << 56 | 0xf_ffff_ffff << 16 & 0xf_ffff_ffff_ffff | 0x1f << 7;
const PENDBASER_ZERO: u64 = 1 << 62;
const ADDRESS: u64 = 0xf_ffff_ffff_f000;
/// The LPIs of a word of the table of what is pending, and of a piece of the table of properties.
const PIECE: usize = 64;

/// The guest's memory, as the GIC reads and writes its tables and the ITS its commands. It changes at any time, and
/// nothing that is in it is relied on.
///
/// Addresses are the guest's physical ones, any `u64` with any length: an implementation checks that all of it is memory
/// before it touches any.
pub trait GuestTables {
    /// Copies from the guest. Returns whether all of it is memory; if not, `into` may have been changed.
    #[must_use]
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Copies to the guest. Returns whether all of it is memory; if not, nothing was written.
    #[must_use]
    fn write(&self, address: u64, from: &[u8]) -> bool;
}

/// The address of the byte of the first LPI, and how many LPIs the table has.
fn properties(propbaser: u64) -> (u64, usize) {
    let numbers = 1_usize << ((propbaser & 0x1f) + 1).min(24);
    (propbaser & ADDRESS, numbers.saturating_sub(FIRST_LPI as usize))
}

impl<K: Kick> Vgic<K> {
    /// `GICR_PROPBASER`, or `GICR_PENDBASER`, of a GIC with an ITS.
    pub(crate) fn read_table(&self, vcpu: usize, pending: bool) -> u64 {
        let Some(its) = &self.its else { return 0 };
        if pending {
            self.redistributors[vcpu].lpis.table.load(Ordering::Relaxed) & !PENDBASER_ZERO
        } else {
            its.propbaser.load(Ordering::Relaxed)
        }
    }

    /// Writes it, unless the redistributor uses it.
    pub(crate) fn write_table(&self, vcpu: usize, pending: bool, value: impl Fn(u64) -> u64) {
        let Some(its) = &self.its else { return };
        let own = &self.redistributors[vcpu].lpis;
        if !own.is_off() {
            return;
        }
        let (register, bits) =
            if pending { (&own.table, PENDBASER) } else { (&its.propbaser, PROPBASER) };
        // Relaxed: released by what turns LPIs on, or by the queue's next command.
        register.store(value(register.load(Ordering::Relaxed)) & bits, Ordering::Relaxed);
    }

    /// `GICR_CTLR.EnableLPIs` is written.
    pub(crate) fn enable_lpis(&self, vcpu: usize, on: bool) {
        if let Some(its) = &self.its
            && self.redistributors[vcpu].lpis.enable(on)
        {
            its.has_work();
        }
    }

    /// Has LPI `lpi`, counted from the first, be pending at the redistributor of `vcpu`, if that takes LPIs.
    pub(crate) fn make_pending(&self, lpi: usize, vcpu: usize) {
        if self.redistributors.get(vcpu).is_none_or(|own| !own.lpis.accepts()) {
            return;
        }
        let route = affinity(vcpu) as u32;
        self.send_lpi(lpi, vcpu, |state| state.moved(route).latched());
    }

    /// Has an LPI that is pending be so at the redistributor of `vcpu`, if that takes LPIs; only one that is at `from`, if
    /// that is said.
    pub(crate) fn move_pending(&self, lpi: usize, from: Option<usize>, vcpu: usize) {
        let route = affinity(vcpu) as u32;
        let moves = |state: State| match from {
            Some(from) => state.is_pending_at(affinity(from) as u32),
            None => state.is_pending(),
        };
        self.send_lpi(lpi, vcpu, |state| if moves(state) { state.moved(route) } else { state });
    }

    fn send_lpi(&self, lpi: usize, vcpu: usize, step: impl Fn(State) -> State) {
        let Some(own) = self.redistributors.get(vcpu) else { return };
        let intid = FIRST_LPI + lpi as u32;
        let Some(before) = self.change(0, intid, &step) else { return };
        // Pairs with the fence of the thread that stops: see the top of this file.
        fence(Ordering::SeqCst);
        let route = affinity(vcpu) as u32;
        // One that was pending there is the thread's, or is taken back by the party that has sent it.
        if before.is_pending_at(route) || step(before) == before || own.lpis.accepts() {
            return;
        }
        self.change(0, intid, |state| state.cleared_at(route));
    }

    /// Has LPI `lpi` be pending at no redistributor.
    pub(crate) fn clear_pending(&self, lpi: usize) {
        self.change(0, FIRST_LPI + lpi as u32, State::cleared);
    }

    /// Reads the properties of the LPIs of `range`. Those that the table has not, or that are not in memory, are disabled.
    pub(crate) fn configure(
        &self,
        its: &Its,
        range: core::ops::Range<usize>,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) {
        let (address, there) = properties(its.propbaser.load(Ordering::Relaxed));
        let mut first = range.start;
        while first < range.end {
            let mut bytes = [0; PIECE];
            let count = PIECE.min(range.end - first);
            let in_table = count.min(there.saturating_sub(first));
            if !memory.read(address + first as u64, &mut bytes[..in_table]) {
                bytes.fill(0);
            }
            for (lpi, byte) in (first..first + count).zip(bytes) {
                self.change(0, FIRST_LPI + lpi as u32, |state| state.configured(byte));
                if lpi % PART == PART - 1 {
                    pause();
                }
            }
            first += count;
        }
    }

    /// Does what is to be done for the LPIs of a redistributor that is turned on or off.
    pub(crate) fn serve_lpis(
        &self,
        its: &Its,
        vcpu: usize,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) {
        let own = &self.redistributors[vcpu].lpis;
        if own.is_starting() {
            self.configure(its, 0..self.lpis.len(), memory, pause);
            self.read_pending(vcpu, memory, pause);
            own.started();
        }
        if own.is_stopping() {
            fence(Ordering::SeqCst);
            self.write_pending(vcpu, memory, pause);
            own.stopped();
        }
    }

    /// Where a redistributor's table of what is pending has LPIs from `first` on.
    fn pending_at(table: u64, first: usize) -> u64 {
        (table & ADDRESS & !0xffff) + (u64::from(FIRST_LPI) + first as u64) / 8
    }

    fn read_pending(
        &self,
        vcpu: usize,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) {
        let table = self.redistributors[vcpu].lpis.table.load(Ordering::Relaxed);
        if table & PENDBASER_ZERO != 0 {
            return;
        }
        for first in (0..self.lpis.len()).step_by(PIECE) {
            let mut bytes = [0; PIECE / 8];
            if !memory.read(Self::pending_at(table, first), &mut bytes) {
                bytes.fill(0);
            }
            let bits = u64::from_le_bytes(bytes);
            for place in (0..PIECE).filter(|place| bits >> place & 1 != 0) {
                self.make_pending(first + place, vcpu);
                pause();
            }
            pause();
        }
    }

    fn write_pending(
        &self,
        vcpu: usize,
        memory: &(impl GuestTables + ?Sized),
        pause: &mut dyn FnMut(),
    ) {
        let own = &self.redistributors[vcpu].lpis;
        let table = own.table.load(Ordering::Relaxed);
        let route = affinity(vcpu) as u32;
        let keeps = own.is_unread() && table & PENDBASER_ZERO == 0;
        for first in (0..self.lpis.len()).step_by(PIECE) {
            let at = Self::pending_at(table, first);
            let mut bytes = [0; PIECE / 8];
            if keeps && !memory.read(at, &mut bytes) {
                bytes.fill(0);
            }
            let mut bits = u64::from_le_bytes(bytes);
            for place in 0..PIECE {
                let intid = FIRST_LPI + (first + place) as u32;
                let before = self.change(0, intid, |state| state.cleared_at(route));
                let was_pending = before.is_some_and(|state| state.is_pending_at(route));
                bits |= u64::from(was_pending) << place;
                if place % PART == PART - 1 {
                    pause();
                }
            }
            // Where there is no memory, there is nowhere to keep them.
            let _ = memory.write(at, &bits.to_le_bytes());
        }
        // What is pending now is what the table says.
        own.table.store(table & !PENDBASER_ZERO, Ordering::Relaxed);
    }
}
