//! The machine's own network card. Frames are written to its buffers, and read from them, without a lock: a buffer is the
//! caller's or the card's.

use mayfly_drivers::{Broken, Card, Outgoing, Received, Registers, Unusable};

use super::CARD;
use super::dma::Dma;
use crate::bare::processor::once::Once;
use crate::bare::processor::own;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads::Bell;
use crate::bare::threads::interrupts::OWN;

/// The network card of the machine.
pub(crate) struct OwnCard(SpinLock<Card<Dma, Registers>>);

static IT: Once<OwnCard> = Once::new();

pub(super) fn set(registers: Registers) -> Result<(), Unusable> {
    IT.set(OwnCard(SpinLock::new(Card::new(registers)?)));
    Ok(())
}

/// The card, if the machine has one that can be used.
pub(crate) fn get() -> Option<&'static OwnCard> {
    IT.get()
}

/// Rings when a frame has come, or the card is broken.
pub(crate) fn bell() -> &'static Bell {
    &OWN[CARD]
}

impl OwnCard {
    /// As [`Card::receive`]. There is no interrupt for the next.
    pub(crate) fn receive(&self) -> Result<Option<Received>, Broken> {
        let mut card = self.0.lock();
        card.ignore();
        card.receive()
    }

    /// As [`Card::look`], if the card has told of a change.
    pub(crate) fn look(&self) -> Result<(), Broken> {
        let has_changed = own::take_change(CARD);
        if has_changed { self.0.lock().look(own::is_heard(CARD)) } else { Ok(()) }
    }

    /// As [`Card::give_back`].
    pub(crate) fn give_back(&self, received: Received) {
        self.0.lock().give_back(received);
    }

    /// As [`Card::listen`].
    pub(crate) fn listen(&self) -> bool {
        self.0.lock().listen()
    }

    /// As [`Card::room`].
    pub(crate) fn room(&self, sender: u64) -> Result<Option<Outgoing>, Broken> {
        let room = self.0.lock().room(sender);
        // A card that was stopped interrupts no more, and its thread is to say so.
        room.inspect_err(|_| bell().ring())
    }

    /// As [`Card::send`].
    pub(crate) fn send(&self, frame: Outgoing) {
        self.0.lock().send(frame);
    }

    /// As [`Card::discard`].
    pub(crate) fn discard(&self, frame: Outgoing) {
        self.0.lock().discard(frame);
    }
}
