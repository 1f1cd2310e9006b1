//! Messages, from vCPUs and from the IOAPIC, to local APICs.

use crate::address::Destination;
use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::vapic::{Kick, Vapic};

/// For how many vCPUs a message is looked at, or sent, before [`Kick::pause`] is called.
pub const PART: usize = 8;

/// What a message does where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// An interrupt for all that are named, or for one of them.
    Fixed,
    LowestPriority,
    Nmi,
    Init,
    Startup,
}

impl Delivery {
    /// Bits 10 to 8 of `ICR`, and of an entry of the IOAPIC. SMI and `ExtINT` go to nobody: a guest has neither a system
    /// management mode nor an 8259.
    pub(crate) const fn from_bits(bits: u32) -> Option<Self> {
        match bits & 7 {
            0 => Some(Self::Fixed),
            1 => Some(Self::LowestPriority),
            4 => Some(Self::Nmi),
            5 => Some(Self::Init),
            6 => Some(Self::Startup),
            _ => None,
        }
    }

    /// Whether its vector is that of an interrupt.
    pub(crate) const fn is_interrupt(self) -> bool {
        matches!(self, Self::Fixed | Self::LowestPriority)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) delivery: Delivery,
    pub(crate) vector: u8,
    pub(crate) level: bool,
    pub(crate) destination: Destination,
}

impl Message {
    /// Whether its vector is one that an interrupt may have.
    const fn is_legal(self) -> bool {
        self.vector >= FIRST_VECTOR
    }
}

/// The first vector of an interrupt.
pub(crate) const FIRST_VECTOR: u8 = 16;

impl<K: Kick> Vapic<K> {
    /// Sends a message; whether an interrupt was accepted by anybody. `sender` is the vCPU that sends, which looks itself
    /// before it goes on, and is not kicked; `except` is whether it is left out.
    pub(crate) fn deliver(&self, message: Message, sender: Option<usize>, except: bool) -> bool {
        let left_out = sender.filter(|_| except);
        let named = |vcpu: usize| left_out != Some(vcpu) && self.taker(vcpu, message).is_some();
        if message.delivery == Delivery::LowestPriority {
            let Some(lowest) = self.lowest_priority(message, named) else { return false };
            // If that one takes it no longer, any other will do.
            let mut accepted = self.arrive(lowest, message, sender);
            if !accepted && message.is_legal() {
                self.each(|vcpu| {
                    accepted = accepted || named(vcpu) && self.arrive(vcpu, message, sender);
                });
            }
            return accepted;
        }
        if let Destination::Physical(id) = message.destination {
            let vcpu = id as usize;
            return named(vcpu) && self.arrive(vcpu, message, sender);
        }
        let mut accepted = false;
        self.each(|vcpu| {
            if named(vcpu) {
                accepted |= self.arrive(vcpu, message, sender);
            }
        });
        accepted
    }

    /// Calls `work` with each vCPU, in parts.
    fn each(&self, mut work: impl FnMut(usize)) {
        for vcpu in 0..self.vcpus() {
            work(vcpu);
            if vcpu % PART == PART - 1 {
                self.kick.pause();
            }
        }
    }

    /// The mailbox of a vCPU that a message is for, and that takes it, and in which life. One that is disabled by its
    /// `SVR` takes events alone (Intel SDM volume 3, 11.4.7.2; AMD APM volume 2, 16.3.1).
    fn taker(&self, vcpu: usize, message: Message) -> Option<(&Mailbox, u16)> {
        let mailbox = &**self.mailboxes.get(vcpu)?;
        let address = mailbox.address();
        let takes = (address.enabled || !message.delivery.is_interrupt())
            && address.is_named(vcpu as u32, message.destination);
        takes.then_some((mailbox, address.life))
    }

    /// The one of the lowest priority. Of several with the same, the vector says which, so that interrupts of several
    /// devices are spread, and each device's go to one place.
    fn lowest_priority(&self, message: Message, named: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut lowest, mut count) = (u32::MAX, 0);
        self.each(|vcpu| {
            if named(vcpu) {
                let priority = self.mailboxes[vcpu].priority();
                if priority < lowest {
                    (lowest, count) = (priority, 0);
                }
                count += usize::from(priority == lowest);
            }
        });
        let mut skipped = usize::from(message.vector).checked_rem(count)?;
        let (mut found, mut any) = (None, None);
        self.each(|vcpu| {
            if found.is_none() && named(vcpu) {
                any = any.or(Some(vcpu));
                if self.mailboxes[vcpu].priority() == lowest {
                    if skipped == 0 {
                        found = Some(vcpu);
                    }
                    skipped = skipped.saturating_sub(1);
                }
            }
        });
        // Priorities may have changed meanwhile: any of those that are named will do.
        found.or(any)
    }

    /// A message arrives at a vCPU, if that still takes it; whether it is an interrupt that is accepted.
    fn arrive(&self, vcpu: usize, message: Message, sender: Option<usize>) -> bool {
        let Some((mailbox, life)) = self.taker(vcpu, message) else { return false };
        let mut accepted = false;
        match message.delivery {
            Delivery::Fixed | Delivery::LowestPriority if message.is_legal() => {
                accepted = mailbox.put_in(life, message.vector, message.level);
            }
            Delivery::Fixed | Delivery::LowestPriority => mailbox.send_illegal(),
            Delivery::Nmi => mailbox.send(Event::Nmi),
            Delivery::Init => mailbox.send(Event::Init),
            Delivery::Startup => mailbox.send(Event::Startup(message.vector)),
        }
        if sender != Some(vcpu) && mailbox.notify() {
            self.kick.kick(vcpu);
        }
        accepted
    }
}
