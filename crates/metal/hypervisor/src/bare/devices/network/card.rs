//! The network card of a VM.

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
    config: card::Card,
    mac: [u8; 6],
    port: SpinLock<Option<Port>>,
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
        let make = |mac| Mmio::new(Net::new(mac));
        let virtio = Virtio::new(world, mac, make, line, CARD_INTERRUPT, bell);
        let (virtio, port) = (Arc::new(virtio), SpinLock::new(None));
        Some(Self { virtio, config: config.clone(), mac, port })
    }

    /// Its registers.
    pub(crate) fn registers(&self) -> Arc<Virtio<Net, [u8; 6]>> {
        Arc::clone(&self.virtio)
    }

    /// Whether it is on the network that leads out of the machine, and the machine has no card for that.
    pub(crate) fn leads_nowhere(&self) -> bool {
        self.config.network.as_deref() == Some(UPLINK) && own::card::get().is_none()
    }

    /// It comes to its network, with the memory of its VM.
    ///
    /// # Errors
    ///
    /// Why it does not. It sends nothing then, and receives nothing.
    pub(crate) fn attach(&self, memory: &Arc<GuestMemory>) -> Result<(), NoPort> {
        let end = Arc::new(End::Card { virtio: self.registers(), memory: Arc::clone(memory) });
        let name = self.config.network.clone().unwrap_or_default();
        let leads_out = name == UPLINK;
        let out = own::card::get().filter(|_| leads_out).map(|card| Arc::new(End::Uplink(card)));
        let mut network = NETWORK.lock();
        let config = Config {
            place: Place::Card(self.mac),
            network: network.number(name)?,
            isolated: self.config.isolated,
            limits: Limits { bytes: self.config.rate, packets: None },
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
