//! Where the forks of a service are given their frames, and give what they send.
//!
//! A *desk* is a card on the network of the frozen VM, with its address. What comes for that address comes here, and goes to
//! the fork whose connection it is of. A fork has a *seat*: its card is on no network, and what it sends comes here, too,
//! and goes out in the name of the desk's card. So the switch knows one card of that address, and learns nothing of a fork.
//!
//! A frame is judged by a copy of it, which is what goes on: a guest may change its memory at any time. The copy is made
//! without a lock; the lock of the service is held for the decision.
//!
//! The thread that brings a frame gives it to the fork, as on any network: a fork without buffers loses it, and holds up
//! nobody. The fork's first frame, the SYN that it was made for, is given by the thread of its own devices, as soon as its
//! card has a buffer for it.

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use mayfly_devices::virtio::net::{FRAME_HEAD, Frame, Lost, Offload, Packet, Source};
use mayfly_dispatch::{Config, Flow};
use mayfly_drivers::FRAME_BYTES;
use mayfly_hypervisor::card;
use mayfly_hypervisor::needs::Needs;
use mayfly_hypervisor::service::{Kept, Outside, Sent, Service};
use mayfly_switch::{Counts, Port};

use super::bytes::{Bytes, copy};
use super::ports::{End, NETWORK, alone, cut, deliver, join, now, part};
use crate::bare::devices::virtio::Ram;
use crate::bare::processor::heap::Guaranteed;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads::Bell;

/// The forks of a service, as the network knows them.
pub(crate) struct Desk {
    service: SpinLock<Service<Arc<End>>>,
    port: SpinLock<Option<Port>>,
    /// What became of the frames of the port, once it is closed.
    total: SpinLock<Counts>,
    /// Rings when the thread of the service is to look.
    pub(crate) bell: Bell,
    /// The heap that is guaranteed with it.
    _heap: Guaranteed,
}

impl Desk {
    /// One of forks of a VM with that card and that address, `most` of them at a time. It is on the network of the card until it is
    /// [closed](Desk::close).
    ///
    /// # Errors
    ///
    /// Why it cannot be.
    pub(crate) fn open(card: &card::Card, config: Config, most: u16) -> Result<Arc<Self>, String> {
        let heap = Needs::of_pieces(Service::<Arc<End>>::bytes(&config, most));
        let heap =
            Guaranteed::try_new(heap).map_err(|_| "there is too little heap for it".to_string())?;
        let service = Service::try_new(config, most).map_err(|why| why.to_string())?;
        let (service, port) = (SpinLock::new(service), SpinLock::new(None));
        let total = SpinLock::new(Counts::NONE);
        let desk = Arc::new(Self { service, port, total, bell: Bell::new(), _heap: heap });
        let end = Arc::new(End::Desk(Arc::clone(&desk)));
        let port = join(card, config.mac, end).map_err(|why| why.to_string())?;
        *desk.port.lock() = Some(port);
        Ok(desk)
    }

    /// It leaves its network, and all its flows end.
    pub(crate) fn close(&self) {
        let port = self.port.lock().take();
        if let Some(counts) = port.and_then(part) {
            *self.total.lock() = counts;
        }
        self.with(|service| service.close(now()));
        self.bell.ring();
    }

    /// How many frames its forks have lost for want of room.
    pub(crate) fn lost(&self) -> u64 {
        let port = *self.port.lock();
        let counts = port.and_then(|port| NETWORK.lock().switch.counts(port));
        counts.map_or_else(|| self.total.lock().lost, |counts| counts.lost)
    }

    /// Does something with the service.
    pub(crate) fn with<T>(&self, then: impl FnOnce(&mut Service<Arc<End>>) -> T) -> T {
        then(&mut self.service.lock())
    }

    /// Gives a frame of `from` to the fork that it is for.
    pub(super) fn receive(
        &self,
        from: Port,
        frame: &Frame<'_>,
        source: &impl Source,
    ) -> Result<(), Lost> {
        let mut buffer = [0; FRAME_BYTES];
        let bytes = copy(frame, source, &mut buffer)?;
        let give = |card: &Arc<End>| {
            card.receive(from, bytes.len() as u64, &Offload::default(), &Bytes(bytes))
        };
        match self.with(|service| service.from_outside(bytes, now())) {
            Outside::Nothing => Ok(()),
            Outside::Look => {
                self.bell.ring();
                Ok(())
            }
            Outside::Give(card) => give(&card),
            Outside::GiveLast(card, flow) => {
                let given = card.map_or(Ok(()), |card| give(&card));
                self.over(flow);
                given
            }
            Outside::Answer(answer) => {
                self.send(answer.bytes());
                Ok(())
            }
        }
    }

    /// Sends a frame out, as that of the desk's card.
    fn send(&self, bytes: &[u8]) {
        let port = *self.port.lock();
        let Some((port, head)) = port.zip(bytes.first_chunk::<FRAME_HEAD>()) else { return };
        let len = bytes.len() as u64;
        let sent = NETWORK.lock().switch.forward(port, *head, len, now());
        if let Ok(targets) = sent {
            deliver(port, targets, (len, &Offload::default(), &Bytes(bytes)), &|| false);
        }
    }

    fn over(&self, flow: Flow) {
        self.with(|service| service.over(flow, now()));
        self.bell.ring();
    }
}

/// The place of a fork at a desk, for one run of it.
pub(crate) struct Seat {
    desk: Arc<Desk>,
    flow: Flow,
    /// The card, and the SYN that it was not given yet.
    taken: SpinLock<Option<(Arc<End>, Option<Kept>)>>,
}

impl Seat {
    /// That of the fork of a flow.
    pub(crate) fn new(desk: Arc<Desk>, flow: Flow) -> Self {
        Self { desk, flow, taken: SpinLock::new(None) }
    }

    /// The fork's card comes. If nobody waits for it any more, the fork is about to be ended.
    pub(super) fn take(&self, card: Arc<End>) {
        let its = Arc::clone(&card);
        let syn = self.desk.with(|service| service.seat(self.flow, its, now()));
        *self.taken.lock() = Some((card, syn));
    }

    /// It goes.
    pub(super) fn leave(&self) {
        let card = self.desk.with(|service| service.leave(self.flow));
        drop(card);
        let taken = self.taken.lock().take();
        if let Some((card, _)) = taken {
            alone(&card);
        }
    }

    fn card(&self) -> Option<Arc<End>> {
        self.taken.lock().as_ref().map(|(card, _)| Arc::clone(card))
    }

    /// Gives the SYN to the card, unless it has it. A card that has no buffer for it yet gets it later.
    pub(super) fn give_syn(&self) {
        let syn = self.taken.lock().as_mut().and_then(|(_, syn)| syn.take());
        let Some((card, syn)) = self.card().zip(syn) else { return };
        if let Err(Lost::NoRoom | Lost::NotWorking) = self.give(&card, &syn)
            && let Some((_, kept)) = self.taken.lock().as_mut()
        {
            *kept = Some(syn);
        }
    }

    fn give(&self, card: &Arc<End>, frame: &Kept) -> Result<(), Lost> {
        let port = *self.desk.port.lock();
        let bytes = frame.bytes();
        let from = port.ok_or(Lost::NotWorking)?;
        card.receive(from, bytes.len() as u64, &Offload::default(), &Bytes(bytes))
    }

    /// Carries a frame that the fork sends.
    pub(super) fn carry(&self, packet: &Packet, ram: &Ram<'_>) {
        let Ok(offload) = packet.offload() else { return };
        let source = packet.in_memory(ram);
        let mut buffer = [0; FRAME_BYTES];
        // A frame that cannot be read goes to nobody, and those that it would have been cut into after it.
        let _ = cut(packet.len(), &offload, &source, |frame| {
            let bytes = copy(frame, &source, &mut buffer)?;
            match self.desk.with(|service| service.from_fork(self.flow, bytes, now())) {
                Sent::Nothing => {}
                Sent::Send => self.desk.send(bytes),
                Sent::SendLast => {
                    self.desk.send(bytes);
                    self.desk.over(self.flow);
                }
                Sent::Answer(answer) => {
                    if let Some(card) = self.card() {
                        // Without a buffer for it, the fork asks again.
                        let _ = self.give(&card, &answer);
                    }
                }
            }
            Ok(())
        });
    }
}
