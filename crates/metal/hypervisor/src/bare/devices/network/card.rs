//! The network card of a VM.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_devices::virtio::net::{Net, Packet};
use mayfly_devices::virtio::{Mmio, Served};
use mayfly_hypervisor::card;
use mayfly_switch::{Config, Counts, Limits, NoPort, Place, Port};

use super::outgoing::UPLINK;
use super::ports::{End, NETWORK, deliver, now};
use crate::bare::devices::arch::{CARD_INTERRUPT, Controller};
use crate::bare::devices::virtio::{Ram, Virtio};
use crate::bare::own;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::share::pause;

/// The card of a VM, and what it is to be.
pub(crate) struct Card {
    virtio: Arc<Virtio<Net, [u8; 6]>>,
    /// What it is to be on its network, and its address; none of a fork, which is on no network.
    config: Option<(card::Card, [u8; 6])>,
    port: SpinLock<Option<Port>>,
}

/// A card with that address.
pub(crate) fn make(mac: [u8; 6]) -> Mmio<Net> {
    Mmio::new(Net::new(mac))
}

/// How many frames of a VM are carried before its other devices are served.
const FRAMES_AT_ONCE: usize = 64;

impl Card {
    /// The card of VM `name`, as after a reset, if it is to have one.
    pub(crate) fn try_new(
        config: &card::Card,
        name: &str,
        world: &Arc<World>,
        line: &Arc<Controller>,
        bell: &Arc<Bell>,
    ) -> Option<Self> {
        config.network.as_ref()?;
        let mac = config.mac(name);
        let virtio = Virtio::new(world, mac, make, line, CARD_INTERRUPT, bell);
        let (virtio, port) = (Arc::new(virtio), SpinLock::new(None));
        Some(Self { virtio, config: Some((config.clone(), mac)), port })
    }

    /// The card of a fork, which goes on as that of its frozen VM.
    pub(crate) fn made(
        world: &Arc<World>,
        mut card: Box<Mmio<Net>>,
        line: &Arc<Controller>,
        bell: &Arc<Bell>,
    ) -> Self {
        card.set_link(false);
        let virtio = Virtio::made(world, card, make, line, CARD_INTERRUPT, bell);
        Self { virtio: Arc::new(virtio), config: None, port: SpinLock::new(None) }
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
        let network = self.config.as_ref().and_then(|(config, _)| config.network.as_deref());
        network == Some(UPLINK) && own::card::get().is_none()
    }

    /// It comes to its network, with the memory of its VM.
    ///
    /// # Errors
    ///
    /// Why it does not. It sends nothing then, and receives nothing.
    pub(crate) fn attach(&self, memory: &Arc<GuestMemory>) -> Result<(), NoPort> {
        let Some((config, mac)) = &self.config else { return Ok(()) };
        let end = Arc::new(End::Card { virtio: self.registers(), memory: Arc::clone(memory) });
        let name = config.network.clone().unwrap_or_default();
        let leads_out = name == UPLINK;
        let out = own::card::get().filter(|_| leads_out).map(|card| Arc::new(End::Uplink(card)));
        let mut network = NETWORK.lock();
        let config = Config {
            place: Place::Card(*mac),
            network: network.number(name)?,
            isolated: config.isolated,
            limits: Limits { bytes: config.rate, packets: None },
        };
        let port = network.switch.try_add(config, end, now())?;
        let out = network.lead_out(config.network, out);
        drop(network);
        drop(out);
        *self.port.lock() = Some(port);
        Ok(())
    }

    /// It leaves its network. Returns what became of its frames.
    pub(crate) fn detach(&self) -> Option<Counts> {
        let port = self.port.lock().take()?;
        let (counts, end, out) = {
            let mut network = NETWORK.lock();
            let (counts, end) = (network.switch.counts(port), network.switch.remove(port));
            let out = network.forget();
            (counts, end, out)
        };
        drop(out);
        // The others that have it are giving it a frame.
        while end.as_ref().is_some_and(|end| Arc::strong_count(end) > 1) {
            pause();
        }
        counts
    }

    /// What has become of its frames, while it is on its network.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let port = (*self.port.lock())?;
        NETWORK.lock().switch.counts(port)
    }

    /// Serves what its driver asks for, and carries what it sends, until there is no more for now, or `is_over`.
    pub(crate) fn serve(&self, memory: &GuestMemory, is_over: impl Fn() -> bool) {
        if !self.virtio.take_notice() {
            return;
        }
        let ram = Ram::at_once(memory);
        while self.virtio.with(|card| card.serve(&ram)) == Served::One && !is_over() {
            self.virtio.drive();
            threads::preemption_point();
        }
        let mut packet = Packet::new();
        let mut carried = 0;
        while !is_over() && self.virtio.with(|card| card.take(&mut packet, &ram)) {
            self.carry(&packet, &ram, &is_over);
            self.virtio.with(|card| card.give_back(&packet, &ram));
            self.virtio.drive();
            threads::preemption_point();
            carried += 1;
            if carried == FRAMES_AT_ONCE {
                self.virtio.look_again();
                break;
            }
        }
        // Also where its rings made no sense.
        self.virtio.drive();
    }

    fn carry(&self, packet: &Packet, ram: &Ram<'_>, is_over: &impl Fn() -> bool) {
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
