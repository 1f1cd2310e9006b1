//! What a vCPU does with its local APIC before it goes into its guest.

use crate::address::{Address, Mode};
use crate::event::Event;
use crate::local::{LocalApic, error};
use crate::lvt;
use crate::message::FIRST_VECTOR;
use crate::timer::Time;
use crate::vapic::{Kick, Vapic};
use crate::vectors::contains;

/// Which interrupt waits for a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// None.
    Nothing,
    /// This one is delivered as soon as the guest takes interrupts (`RFLAGS.IF`, no interrupt shadow).
    Deliver(u8),
    /// This one waits for the guest to lower its task priority: `CR8` below the upper four bits of the vector. Under SVM
    /// that is `V_INTR_PRIO` of the VMCB.
    Masked(u8),
}

/// What a vCPU finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What comes before interrupts. If there is one, see to it, and look again.
    pub event: Option<Event>,
    /// The interrupt of the highest priority.
    pub next: Next,
}

impl<K: Kick> Vapic<K> {
    /// Takes the notice of a vCPU, and says what there is for it.
    pub fn look(&self, apic: &mut LocalApic, now: Time) -> Look {
        let mailbox = self.own(apic);
        mailbox.take_notice();
        self.advance(apic, now);
        let (event, illegal) = mailbox.take_event(apic.waits);
        if illegal {
            self.record(apic, error::RECEIVE_ILLEGAL_VECTOR);
        }
        match event {
            Some(Event::Init) => {
                self.forget(apic);
                apic.waits = apic.vcpu != 0;
            }
            Some(Event::Startup(_)) => {
                // What was under way when it was initialised, and has come since.
                self.begin_life(apic, [0; 8]);
                apic.waits = false;
            }
            Some(Event::Nmi) | None => {}
        }
        Look { event, next: self.next(apic) }
    }

    /// The interrupt that waits for a vCPU, if nothing else has come since it was looked at.
    pub fn next(&self, apic: &LocalApic) -> Next {
        if apic.waits || apic.mode() == Mode::Disabled {
            return Next::Nothing;
        }
        match self.own(apic).highest() {
            Some(vector) if vector >> 4 > apic.ppr() >> 4 => Next::Deliver(vector),
            Some(vector) if vector >> 4 > apic.in_service() => Next::Masked(vector),
            _ => Next::Nothing,
        }
    }

    /// The guest takes the interrupt of the highest priority now, if its priority lets it: it is in service from here on,
    /// and is to be injected. Whatever has come since the vCPU has looked counts.
    pub fn accept(&self, apic: &mut LocalApic) -> Option<u8> {
        let Next::Deliver(vector) = self.next(apic) else { return None };
        self.own(apic).take(vector);
        apic.begin(vector);
        self.publish_priority(apic);
        Some(vector)
    }

    /// The guest has written `CR8`, or an exit shows what it has made of the virtual task priority (`V_TPR`). Bits 7 to 4
    /// are ignored: a guest that sets them has a general-protection fault. The lower bits of the task priority become
    /// zero, unless the upper are what they were: an exit does not tell whether the guest has written those.
    pub fn set_cr8(&self, apic: &mut LocalApic, cr8: u8) {
        let tpr = cr8 << 4;
        if tpr >> 4 != apic.cr8() {
            apic.tpr = tpr;
            self.publish_priority(apic);
        }
    }

    /// The timer goes on to `now`.
    pub(crate) fn advance(&self, apic: &mut LocalApic, now: Time) {
        if apic.timer.advance(now) {
            self.raise(apic, lvt::TIMER);
        }
    }

    /// A source of the local vector table has an interrupt.
    fn raise(&self, apic: &mut LocalApic, entry: usize) {
        let register = apic.lvt[entry];
        if register & lvt::MASKED != 0 {
            return;
        }
        let vector = register as u8;
        if vector >= FIRST_VECTOR {
            self.own(apic).put(vector, false);
        } else {
            self.record(apic, error::RECEIVE_ILLEGAL_VECTOR);
        }
    }

    /// An error: the first since `ESR` was written is an interrupt (Intel SDM volume 3, 11.5.3).
    pub(crate) fn record(&self, apic: &mut LocalApic, error: u32) {
        let first = apic.errors == 0;
        apic.errors |= error;
        if first {
            self.raise(apic, lvt::ERROR);
        }
    }

    /// Senders see how the local APIC is addressed. If it takes interrupts now that it did not take, those of pins that
    /// nobody has taken are sent again.
    pub(crate) fn publish(&self, apic: &LocalApic) {
        let mailbox = self.own(apic);
        let was = mailbox.address();
        mailbox.set_address(apic.address);
        self.publish_priority(apic);
        if was != (Address { life: was.life, ..apic.address }) && apic.address.is_enabled() {
            self.resend_pins(apic.vcpu);
        }
    }

    /// The local APIC is initialised, and has forgotten its interrupts.
    pub(crate) fn forget(&self, apic: &mut LocalApic) {
        let in_service = apic.isr;
        apic.init();
        self.begin_life(apic, in_service);
    }

    /// Another life begins, without the interrupts that have arrived, and without those `in_service`. Where one of them is
    /// level-triggered, its end never comes, so its pin is told of it now.
    fn begin_life(&self, apic: &mut LocalApic, in_service: [u32; 8]) {
        apic.address = apic.address.next_life();
        // First: who still sends to the last life, too late to have it forgotten here, finds that.
        self.publish(apic);
        let levels = self.own(apic).clear(in_service);
        if levels != [0; 8] {
            self.end_pins(|vector| contains(&levels, vector), Some(apic.vcpu));
        }
    }

    pub(crate) fn publish_priority(&self, apic: &LocalApic) {
        self.own(apic).set_priority((apic.ppr() >> 4).into());
    }
}
