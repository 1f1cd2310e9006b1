//! The network card of a VM.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_desk::Gate;
use mayfly_devices::virtio::net::{Net, Packet};
use mayfly_devices::virtio::{Mmio, Served};
use mayfly_hypervisor::card;
use mayfly_switch::{Counts, NoPort, Port};

use super::desk::Seat;
use super::outgoing::UPLINK;
use super::ports::{End, NETWORK, deliver, join, now, part};
use crate::bare::devices::arch::CARD_INTERRUPT;
use crate::bare::devices::lines::Lines;
use crate::bare::devices::virtio::{Ram, Virtio};
use crate::bare::own;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::share::pause;

/// The card of a VM, and what it is to be.
pub(crate) struct Card {
    virtio: Arc<Virtio<Net, [u8; 6]>>,
    place: Place,
    port: SpinLock<Option<Port>>,
    /// What those go through who give it a frame of its network.
    gate: Arc<Gate>,
    /// When its driver is told of frames that it got back, in ticks.
    tells_at: AtomicU64,
}

/// Where a card is.
enum Place {
    /// On a network, as what, with which address.
    Network(card::Card, [u8; 6]),
    /// It is that of a fork of a service.
    Seat(Seat),
    /// It is that of another fork.
    Nowhere,
}

/// A card with that address.
pub(crate) fn make(mac: [u8; 6]) -> Mmio<Net> {
    Mmio::new(Net::new(mac))
}

/// How many buffers of a fork are its own before it receives anything.
const OWN_BUFFERS: usize = 16;

/// How many frames of a VM are carried before its other devices are served.
const FRAMES_AT_ONCE: usize = 64;

/// No time at all.
const NEVER: u64 = u64::MAX;

/// For how long a driver may not be told of frames that it got back, in ticks: 250 us. Hardware's cards have such delays, of
/// some tens of microseconds to some hundreds, and drivers set them (`ethtool --coalesce`).
fn delay() -> u64 {
    timer::frequency() / 4000
}

impl Card {
    /// The card of VM `name`, as after a reset, if it is to have one.
    pub(crate) fn try_new(
        config: &card::Card,
        name: &str,
        world: &Arc<World>,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Option<Self> {
        config.network.as_ref()?;
        let mac = config.mac(name);
        let virtio = Virtio::new(world, mac, make, lines, CARD_INTERRUPT, bell);
        Some(Self::of(virtio, Place::Network(config.clone(), mac)))
    }

    /// The card of a fork, which goes on as that of its frozen VM. It is on no network, unless the fork is one of a service.
    pub(crate) fn made(
        world: &Arc<World>,
        mut card: Box<Mmio<Net>>,
        seat: Option<Seat>,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Self {
        card.set_link(seat.is_some());
        let virtio = Virtio::made(world, card, make, lines, CARD_INTERRUPT, bell);
        let place = seat.map_or(Place::Nowhere, Place::Seat);
        Self::of(virtio, place)
    }

    fn of(virtio: Virtio<Net, [u8; 6]>, place: Place) -> Self {
        let (port, gate, tells_at) = (SpinLock::new(None), Arc::default(), AtomicU64::new(NEVER));
        Self { virtio: Arc::new(virtio), place, port, gate, tells_at }
    }

    /// It is on no network: nor was it before, where its fork goes back, since no fork of a service does.
    pub(crate) fn goes_nowhere(&self) {
        self.virtio.with(|card| card.set_link(false));
    }

    /// The device.
    pub(crate) fn virtio(&self) -> &Virtio<Net, [u8; 6]> {
        &self.virtio
    }

    /// Its registers.
    pub(crate) fn registers(&self) -> Arc<Virtio<Net, [u8; 6]>> {
        Arc::clone(&self.virtio)
    }

    /// Whether it is on the network that leads out of the machine, and the machine has no card for that.
    pub(crate) fn leads_nowhere(&self) -> bool {
        let Place::Network(config, _) = &self.place else { return false };
        config.network.as_deref() == Some(UPLINK) && own::card::get().is_none()
    }

    /// Has the rings of the card be its own where its memory begins as an image, and the first buffers that it receives into, since others write to them who
    /// wait for nothing. Where memory has ended, its devices find that out.
    pub(crate) fn own_pages(&self, memory: &GuestMemory) {
        if !memory.is_over_any() {
            return;
        }
        let ram = Ram::new(memory);
        // They also show its guest that it has received.
        self.virtio.own_shown();
        self.virtio.own_rings(&ram);
        let mut pieces = [(0, 0); OWN_BUFFERS];
        let now = Ram::at_once(memory);
        let count = self.virtio.with(|card| card.next_room(&mut pieces, &now));
        for (address, bytes) in &pieces[..count] {
            ram.own(*address, *bytes);
        }
    }

    /// It comes to its network, or to its seat, with the memory of its VM; or is no longer [held](Card::hold) there.
    ///
    /// # Errors
    ///
    /// Why it does not come to its network. It sends nothing then, and receives nothing.
    pub(crate) fn attach(&self, memory: &Arc<GuestMemory>) -> Result<(), NoPort> {
        if self.port.lock().is_some() {
            self.gate.open();
            return Ok(());
        }
        let end = || {
            let (memory, gate) = (Arc::clone(memory), Arc::clone(&self.gate));
            Arc::new(End::Card { virtio: self.registers(), memory, gate })
        };
        match &self.place {
            Place::Network(config, mac) => {
                let port = join(config, *mac, end())?;
                *self.port.lock() = Some(port);
            }
            Place::Seat(seat) => seat.take(end()),
            Place::Nowhere => {}
        }
        Ok(())
    }

    /// It stays on its network, and loses the frames that come, until it is [attached](Card::attach) again. When this returns,
    /// nobody gives it a frame.
    pub(crate) fn hold(&self) {
        self.gate.shut();
        while !self.gate.is_empty() {
            pause();
        }
    }

    /// It leaves its network, or its seat. Returns what became of its frames on its network.
    pub(crate) fn detach(&self) -> Option<Counts> {
        if let Place::Seat(seat) = &self.place {
            seat.leave();
        }
        let port = self.port.lock().take()?;
        let counts = part(port);
        self.gate.open();
        counts
    }

    /// What has become of its frames, while it is on its network.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let port = (*self.port.lock())?;
        NETWORK.lock().switch.counts(port)
    }

    /// Serves what its driver asks for, and carries what it sends, until there is no more for now, or `is_over`. What it sends is in
    /// `packet` meanwhile.
    #[inline(never)]
    pub(crate) fn serve(
        &self,
        packet: &mut Packet,
        memory: &GuestMemory,
        is_over: impl Fn() -> bool,
    ) {
        if !self.virtio.take_notice() {
            return;
        }
        if let Place::Seat(seat) = &self.place {
            seat.give_syn();
        }
        let ram = Ram::at_once(memory);
        while self.virtio.act(|card| card.serve(&ram)) == Served::One && !is_over() {
            threads::preemption_point();
        }
        let mut carried = 0;
        while !is_over() && self.virtio.act(|card| card.take(packet, &ram)) {
            self.carry(packet, &ram, &is_over);
            let untold = self.virtio.act(|card| {
                let before = card.is_untold();
                card.give_back_untold(packet, &ram);
                (before, card.is_untold())
            });
            match untold {
                (false, true) => self.tells_at.store(timer::ticks() + delay(), Ordering::Relaxed),
                (true, false) => self.tells_at.store(NEVER, Ordering::Relaxed),
                _ => {}
            }
            threads::preemption_point();
            carried += 1;
            if carried == FRAMES_AT_ONCE {
                self.virtio.look_again();
                break;
            }
        }
    }

    /// Tells its driver of frames that it got back, if it has waited for that long enough. Returns when it will have, in ticks;
    /// `u64::MAX` for never. For the thread that serves it.
    pub(crate) fn tell(&self) -> u64 {
        let at = self.tells_at.load(Ordering::Relaxed);
        if at > timer::ticks() {
            return at;
        }
        self.tells_at.store(NEVER, Ordering::Relaxed);
        self.virtio.act(Mmio::tell_of_frames);
        NEVER
    }

    fn carry(&self, packet: &Packet, ram: &Ram<'_>, is_over: &impl Fn() -> bool) {
        if let Place::Seat(seat) = &self.place {
            return seat.carry(packet, ram);
        }
        let Some(port) = *self.port.lock() else { return };
        let Ok(offload) = packet.offload() else {
            return NETWORK.lock().switch.refuse(port);
        };
        let (len, source) = (packet.len(), packet.in_memory(ram));
        let sent = NETWORK.lock().switch.forward(port, *packet.head(), len, now());
        let Ok(targets) = sent else { return };
        deliver(port, targets, (len, &offload, &source), is_over);
    }
}
