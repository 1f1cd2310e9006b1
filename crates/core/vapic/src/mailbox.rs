//! What all threads have of a vCPU's local APIC: where interrupts arrive, and how it is addressed. All else belongs to the
//! vCPU's thread.
//!
//! # The protocol
//!
//! `IRR` is here, a bit a vector, and is the guest's register itself. A sender first says in `TMR` whether the interrupt is
//! level-triggered, then sets the bit of `IRR`, then gives notice, and then, if no notice was given before, kicks. The vCPU
//! takes the notice first, and then looks at `IRR`; when the guest takes an interrupt, its bit is cleared.
//!
//! The notice is read and written by read-modify-writes alone, each an acquire and a release, so they have one order. A
//! notice that is given before the vCPU takes it makes the bit of `IRR` visible to that vCPU. If a notice is given after
//! that, its giver finds it taken, and kicks. A giver that finds the notice given leaves the kick to the giver of that
//! notice, which came after the vCPU last took it.
//!
//! A vCPU that falls asleep says first that it sleeps, where its kick sees it, then takes the notice, and looks. It sees a
//! giver that came before that. A giver that came after it sees that the vCPU sleeps, and its kick wakes the vCPU.
//!
//! The bit of `IRR` is set with release, and read and cleared with acquire. So who sees it sees `TMR` as it was written
//! before, and the end of an interrupt that is level-triggered is told to the IOAPIC, which waits for that. (Two senders
//! may use one vector, one with a level and one with an edge. On hardware too, the one that came last then says which it
//! is.) Setting and clearing are read-modify-writes. So a sender that finds the bit set, and one that finds it cleared,
//! both have what they wrote seen: an interrupt that comes while the same one is taken either was the one that is taken,
//! or is there again.
//!
//! `address` and `priority` are written by the vCPU alone, and read by senders at any time. A sender may find what they
//! were a moment ago: as on a bus, a message that is under way arrives where it was sent. So their loads and stores are
//! relaxed.
//!
//! INIT, start-up, and being turned off or on, begin another *life*, whose number is in `address`. The vCPU says so first,
//! and then clears `IRR`. A sender that has set its bit reads `address` again. If it reads the life to which it sent, its
//! bit was set before it was cleared (both are read-modify-writes of one word, and of two such the later acquires what came
//! before the earlier): the vCPU has found the bit, and tells the IOAPIC that a level-triggered interrupt has ended. If it
//! reads another, nobody has accepted its interrupt. Its bit may be left in `IRR` then, as of a message that came late: the
//! start-up clears it, or the guest takes an interrupt too many.
//!
//! Such a late bit may come while the vCPU clears `TMR`, which it does before it clears `IRR`, and looks at again behind
//! that: if it finds the bit of `IRR` it finds that of `TMR`, before or after.

use mayfly_platform::sync::{AtomicU32, Ordering};

use crate::address::Address;
use crate::event::{Event, Events};
use crate::vectors::{highest_by, place};

/// Where interrupts of a vCPU arrive.
#[derive(Debug)]
pub(crate) struct Mailbox {
    notice: AtomicU32,
    irr: [AtomicU32; 8],
    tmr: [AtomicU32; 8],
    events: AtomicU32,
    address: AtomicU32,
    /// The upper four bits of `PPR`, as of when the vCPU last changed it.
    priority: AtomicU32,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self {
            notice: AtomicU32::new(0),
            irr: core::array::from_fn(|_| AtomicU32::new(0)),
            tmr: core::array::from_fn(|_| AtomicU32::new(0)),
            events: AtomicU32::new(Events::NONE.0),
            address: AtomicU32::new(Address::RESET.to_word()),
            priority: AtomicU32::new(0),
        }
    }

    /// An interrupt arrives, sent to the local APIC in this life; whether it still was in this life.
    pub(crate) fn put_in(&self, life: u16, vector: u8, level: bool) -> bool {
        self.put(vector, level);
        self.address().life == life
    }

    /// An interrupt arrives.
    pub(crate) fn put(&self, vector: u8, level: bool) {
        let (word, bit) = place(vector);
        let tmr = &self.tmr[word];
        // Relaxed: the bit of IRR releases it. Most interrupts are as the last of their vector, and write nothing here.
        if (tmr.load(Ordering::Relaxed) & bit != 0) != level {
            if level {
                tmr.fetch_or(bit, Ordering::Relaxed);
            } else {
                tmr.fetch_and(!bit, Ordering::Relaxed);
            }
        }
        // Acquire: if the bit is set after IRR was cleared, the life that was over before that is seen to be.
        self.irr[word].fetch_or(bit, Ordering::AcqRel);
    }

    /// The guest takes an interrupt.
    pub(crate) fn take(&self, vector: u8) {
        let (word, bit) = place(vector);
        self.irr[word].fetch_and(!bit, Ordering::AcqRel);
    }

    pub(crate) fn irr(&self) -> [u32; 8] {
        core::array::from_fn(|word| self.irr[word].load(Ordering::Acquire))
    }

    /// The highest vector that has arrived, and that the guest has not taken. One that comes meanwhile may not be seen: its
    /// notice is given after that.
    pub(crate) fn highest(&self) -> Option<u8> {
        highest_by(|word| self.irr[word].load(Ordering::Acquire))
    }

    pub(crate) fn tmr(&self) -> [u32; 8] {
        core::array::from_fn(|word| self.tmr[word].load(Ordering::Relaxed))
    }

    /// Whether the last of this vector that came is level-triggered.
    pub(crate) fn is_level(&self, vector: u8) -> bool {
        let (word, bit) = place(vector);
        self.tmr[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Forgets the interrupts that have arrived; which of them, and of those `in_service`, are level-triggered.
    pub(crate) fn clear(&self, in_service: [u32; 8]) -> [u32; 8] {
        core::array::from_fn(|word| {
            let levels = self.tmr[word].swap(0, Ordering::AcqRel);
            let arrived = self.irr[word].swap(0, Ordering::AcqRel);
            (arrived | in_service[word]) & (levels | self.tmr[word].load(Ordering::Relaxed))
        })
    }

    fn change(&self, step: impl Fn(Events) -> Events) -> Events {
        let mut now = self.events.load(Ordering::Acquire);
        loop {
            let to = step(Events(now)).0;
            match self.events.compare_exchange_weak(now, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Events(now),
                Err(seen) => now = seen,
            }
        }
    }

    /// What has come and was not taken.
    pub(crate) fn events(&self) -> Events {
        Events(self.events.load(Ordering::Acquire))
    }

    pub(crate) fn send(&self, event: Event) {
        self.change(|events| events.with(event));
    }

    pub(crate) fn send_illegal(&self) {
        self.change(Events::with_illegal);
    }

    /// What the vCPU, which `waits` for its start-up or not, does next; and whether an illegal vector has come.
    pub(crate) fn take_event(&self, waits: bool) -> (Option<Event>, bool) {
        // Mostly nothing came, and nothing is written.
        if self.events.load(Ordering::Acquire) == Events::NONE.0 {
            return (None, false);
        }
        let events = self.change(|events| events.take(waits).0.without_illegal());
        (events.take(waits).1, events.is_illegal())
    }

    /// Gives notice; whether the vCPU is to be kicked for it.
    #[must_use]
    pub(crate) fn notify(&self) -> bool {
        self.notice.swap(1, Ordering::AcqRel) == 0
    }

    pub(crate) fn has_notice(&self) -> bool {
        self.notice.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn take_notice(&self) {
        self.notice.swap(0, Ordering::AcqRel);
    }

    pub(crate) fn address(&self) -> Address {
        Address::from_word(self.address.load(Ordering::Relaxed))
    }

    pub(crate) fn set_address(&self, address: Address) {
        self.address.store(address.to_word(), Ordering::Relaxed);
    }

    pub(crate) fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    pub(crate) fn set_priority(&self, class: u32) {
        self.priority.store(class, Ordering::Relaxed);
    }

    /// As it was saved, with a notice: the vCPU looks. No other thread uses it meanwhile.
    pub(crate) fn load(&self, irr: [u32; 8], tmr: [u32; 8], events: Events, address: Address) {
        for (words, saved) in [(&self.irr, irr), (&self.tmr, tmr)] {
            for (word, saved) in words.iter().zip(saved) {
                word.store(saved, Ordering::Relaxed);
            }
        }
        self.events.store(events.0, Ordering::Relaxed);
        self.set_address(address);
        self.notice.store(1, Ordering::Relaxed);
    }

    /// As at power-on. No other thread uses it meanwhile.
    pub(crate) fn reset(&self) {
        self.clear([0; 8]);
        self.take_notice();
        self.events.store(Events::NONE.0, Ordering::Relaxed);
        self.set_address(Address::RESET);
        self.set_priority(0);
    }
}
