//! The interrupt controllers of x86 as a guest sees them: a local APIC a vCPU, in xAPIC and in x2APIC mode, and one IOAPIC.
//!
//! The crate touches no hardware and has no unsafe code. The embedder traps the guest's accesses to the two pages and to the
//! MSRs, injects interrupts, tells the time, and kicks vCPUs.
//!
//! ```
//! use std::sync::Mutex;
//! use mayfly_vapic::{Config, Event, Next, Time, Vapic};
//!
//! let kicked = Mutex::new(Vec::new());
//! let config = Config { vcpus: 2, x2apic: true, tsc_deadline: true, physical_bits: 40 };
//! let vapic = Vapic::try_new(config, |vcpu| kicked.lock().unwrap().push(vcpu))?;
//! let (mut first, mut second) = (vapic.local_apic(0).unwrap(), vapic.local_apic(1).unwrap());
//! let now = Time { clock: 0, tsc: 0 };
//!
//! // The guest, on vCPU 0: x2APIC mode, INIT and start-up of vCPU 1 at 0x9a000.
//! vapic.write_msr(&mut first, 0x1b, 0xfee0_0c00, now)?;
//! vapic.write_msr(&mut first, 0x830, 1 << 32 | 0x4500, now)?;
//! vapic.write_msr(&mut first, 0x830, 1 << 32 | 0x4600 | 0x9a, now)?;
//! assert_eq!(*kicked.lock().unwrap(), [1], "vCPU 1 is woken");
//! assert_eq!(vapic.look(&mut second, now).event, Some(Event::Init));
//! assert_eq!(vapic.look(&mut second, now).event, Some(Event::Startup(0x9a)));
//!
//! // vCPU 1 enables its APIC, and pin 5 of the IOAPIC for itself, level-triggered, as vector 0x31.
//! vapic.write(&mut second, 0xf0, 4, 0x1ff, now);
//! for (register, value) in [(0x10 + 2 * 5 + 1, 1 << 24), (0x10 + 2 * 5, 0x8031)] {
//!     vapic.write_ioapic(0x00, 4, register);
//!     vapic.write_ioapic(0x10, 4, value);
//! }
//!
//! // A device raises its line; the guest takes the interrupt, and ends it while the line is high: it comes again.
//! vapic.set_line(5, true)?;
//! assert_eq!(vapic.look(&mut second, now).next, Next::Deliver(0x31));
//! assert_eq!(vapic.accept(&mut second), Some(0x31));
//! vapic.write(&mut second, 0xb0, 4, 0, now);
//! assert_eq!(vapic.accept(&mut second), Some(0x31));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What an embedder does
//!
//! - *Before the guest*: call [`Vapic::look`] until it has no event. If the guest takes interrupts, and [`Next::Deliver`]
//!   says that there is one, inject what [`Vapic::accept`] returns. If there is one that the guest does not take now, have
//!   the guest exit when it does (under SVM, `V_IRQ` with the vector's upper four bits as `V_INTR_PRIO`).
//! - *Right before the guest*, with interrupts masked: [`Vapic::is_stale`] says whether there is something new. If so, start
//!   from the top.
//! - *An access* to the page at [`LocalApic::page`]: [`Vapic::read`], [`Vapic::write`]. To the MSRs [`APIC_BASE`],
//!   [`TSC_DEADLINE`] and [`REGISTERS`]: [`Vapic::read_msr`], [`Vapic::write_msr`]. After any of these, look again: what a
//!   vCPU does to its own APIC gives no notice.
//! - *`CR8`*: [`Vapic::set_cr8`] after each exit, [`LocalApic::cr8`] before each entry.
//! - *The timer*: look again at [`LocalApic::deadline`], and no sooner than a shortest period after the last time: a guest
//!   can have a deadline at each tick.
//! - *HLT*, and a vCPU that [waits for its start-up](LocalApic::waits_for_startup): store "this vCPU sleeps" where
//!   [`Kick::kick`] sees it, call [`Vapic::look`], then sleep if there was nothing.
//! - *The IOAPIC's page*: [`Vapic::read_ioapic`], [`Vapic::write_ioapic`]. *Devices*: [`Vapic::set_line`].
//! - *To save a VM* that stands still: [`Vapic::save_ioapic`], and [`Vapic::save_local`] of each vCPU. New APICs become what
//!   was saved by [`Vapic::load_ioapic`] and [`Vapic::load_local`]. The embedder's clocks go on from where they were.
//!
//! # How the state is guarded
//!
//! There are no locks. What a vCPU has of its own is in its [`LocalApic`], which belongs to its thread. What others change
//! is words, whose transitions are atomic: `mailbox.rs` has the protocol by which no interrupt is missed, `event.rs` says
//! what INIT and start-up do to each other, and `ioapic.rs` how a device, a guest and the end of an interrupt meet.
//!
//! An access does bounded work: it looks at each vCPU three times at most for each message that it sends, and it sends one,
//! or one for each of the 24 pins if it ends an interrupt that all of them share, or changes whom their interrupts go to.
//! What other threads do meanwhile makes it no longer.
//!
//! A guest that has its timer expire at each tick has one interrupt for all that nobody looked at. But the timer has no
//! shortest period: [`LocalApic::deadline`] may be one tick ahead each time. So the embedder waits for some shortest time at
//! least (KVM has `min_timer_period_us`), as a late look costs the guest nothing but the interrupts between.
//!
//! # How faithful it is
//!
//! - An access to the page that is not of 4 bytes at a multiple of 16 is ignored, or reads the bytes of one register. In
//!   x2APIC mode reserved bits are general-protection faults, in xAPIC mode they are ignored.
//! - A level-triggered interrupt that nobody takes waits at its pin. It is sent again when the guest writes the pin's entry,
//!   when the device asserts its line again, and when a local APIC takes interrupts that it did not take. One that an INIT,
//!   or an APIC that is turned off, has dropped is sent again so too. (On hardware its `Remote IRR` stays set.)
//! - The APIC ID is the vCPU's number, and cannot be written. (The manuals call writing it model-specific.)
//! - Interrupts of the lowest priority go to the vCPU whose processor priority is the lowest; of several, the vector says to
//!   which. There are no focus processors.
//! - Messages to an APIC that is off, and interrupts to one that its `SVR` disables, are lost, as are SMIs and `ExtINT`.
//! - Nothing is connected to the pins `LINT0` and `LINT1`, the thermal sensor and the performance counters. Their registers
//!   are kept.
//! - The spurious vector is never delivered: an interrupt that the guest does not take stays where it is.
//! - There is no arbitration priority, no remote read, no end without broadcast, no extended space of AMD's, and nothing is
//!   sent by a write to memory (MSI).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod error;
mod event;
mod ioapic;
mod local;
mod look;
mod lvt;
mod mailbox;
mod message;
mod saved;
mod timer;
mod vapic;
mod vectors;

pub use address::Mode;
pub use error::{Error, GeneralProtection, NoSuchPin};
pub use event::Event;
pub use ioapic::{IOAPIC_SIZE, PINS};
pub use local::LocalApic;
pub use local::msr::{APIC_BASE, REGISTERS, TSC_DEADLINE};
pub use local::page::PAGE_SIZE;
pub use look::{Look, Next};
pub use message::PART;
pub use saved::{IOAPIC_STATE, LOCAL_STATE, UnderWay};
pub use timer::{Deadline, Time};
pub use vapic::{Config, Kick, Vapic};

/// The most vCPUs: as many as the 8 bits of an entry of the IOAPIC can name, of which one value names all.
pub const MAX_VCPUS: usize = 255;
