//! The network of the machine's VMs: their cards, and the switch between them.
//!
//! The thread of a VM's devices carries what the VM sends: from the sender's memory into the buffers of each receiver, and
//! then it tells the receiver. So the sender's account pays for its frames, and a receiver without buffers loses its own
//! frames, and holds up nobody. The thread waits for no memory of the receiver's.
//!
//! **Locks.** The switch has a spin lock, which is held for a decision. A card has a lock that threads sleep for. One card
//! is locked at a time: a frame is taken from its sender's card, then given to each receiver's, and then given back. So
//! two VMs that send to each other do not wait for each other.
//!
//! **Ends.** A card is on the switch while its VM's devices are served. A thread that is giving it a frame when it leaves
//! keeps card and memory until it is through: the VM's run is over only after that.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_devices::virtio::net::{Frame, Lost, Net, Offload, Packet, Source, finish};
use mayfly_devices::virtio::{Mmio, Served};
use mayfly_hypervisor::card;
use mayfly_switch::{Config, Counts, Limits, NoPort, Port, Switch};

use super::arch::{CARD_INTERRUPT, Controller};
use super::bell::Bell;
use super::virtio::{Ram, Virtio};
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;

/// The card of a VM, and what it is to be.
pub(crate) struct Card {
    virtio: Arc<Virtio<Net, [u8; 6]>>,
    config: card::Card,
    mac: [u8; 6],
    port: SpinLock<Option<Port>>,
}

/// Where a port leads.
#[derive(Clone)]
struct End {
    virtio: Arc<Virtio<Net, [u8; 6]>>,
    memory: Arc<GuestMemory>,
}

/// The switch, and the names of its networks, each known by its place.
struct Network {
    switch: Switch<End>,
    names: Vec<String>,
}

static NETWORK: SpinLock<Network> =
    SpinLock::new(Network { switch: Switch::new(), names: Vec::new() });

impl Network {
    fn number(&mut self, name: &str) -> Result<u32, NoPort> {
        let known = self.names.iter().position(|known| known == name);
        let number = known.unwrap_or(self.names.len());
        if known.is_none() {
            self.names.try_reserve(1).map_err(|_| NoPort::Full)?;
            self.names.push(name.into());
        }
        u32::try_from(number).map_err(|_| NoPort::Full)
    }
}

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

    /// It comes to its network, with the memory of its VM.
    ///
    /// # Errors
    ///
    /// Why it does not. It sends nothing then, and receives nothing.
    pub(crate) fn attach(&self, memory: &Arc<GuestMemory>) -> Result<(), NoPort> {
        let end = End { virtio: self.registers(), memory: Arc::clone(memory) };
        let name = self.config.network.as_deref().unwrap_or_default();
        let mut network = NETWORK.lock();
        let config = Config {
            mac: self.mac,
            network: network.number(name)?,
            isolated: self.config.isolated,
            limits: Limits { bytes: self.config.rate, packets: None },
        };
        let port = network.switch.try_add(config, end, now())?;
        drop(network);
        *self.port.lock() = Some(port);
        Ok(())
    }

    /// It leaves its network. Returns what became of its frames.
    pub(crate) fn detach(&self) -> Option<Counts> {
        let port = self.port.lock().take()?;
        let (counts, end) = {
            let mut network = NETWORK.lock();
            let left = (network.switch.counts(port), network.switch.remove(port));
            if network.switch.is_empty() {
                network.names = Vec::new();
            }
            left
        };
        drop(end);
        counts
    }

    /// What has become of its frames, while it is on its network.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let port = (*self.port.lock())?;
        NETWORK.lock().switch.counts(port)
    }

    /// Serves what its driver asks for, and carries what it sends, until there is no more, or `is_over`.
    pub(crate) fn serve(&self, ram: &Ram<'_>, is_over: impl Fn() -> bool) {
        if !self.virtio.take_notice() {
            return;
        }
        while self.virtio.with(|card| card.serve(ram)) == Served::One && !is_over() {
            self.virtio.drive();
            threads::preemption_point();
        }
        let mut packet = Packet::new();
        while !is_over() && self.virtio.with(|card| card.take(&mut packet, ram)) {
            self.carry(&packet, ram);
            self.virtio.with(|card| card.give_back(&packet, ram));
            self.virtio.drive();
            threads::preemption_point();
        }
        // Also where its rings made no sense.
        self.virtio.drive();
    }

    fn carry(&self, packet: &Packet, ram: &Ram<'_>) {
        let Some(port) = *self.port.lock() else { return };
        let source = packet.in_memory(ram);
        let mut head = [0; 14];
        let offload = packet.offload().ok().filter(|_| source.read(0, &mut head).is_ok());
        let Some(offload) = offload else {
            return NETWORK.lock().switch.refuse(port);
        };
        let len = packet.len();
        let Ok(mut targets) = NETWORK.lock().switch.forward(port, head, len, now()) else { return };
        loop {
            let target = NETWORK.lock().switch.next_target(&mut targets);
            let Some((to, end)) = target else { return };
            let received = end.receive(len, &offload, &source).is_ok();
            NETWORK.lock().switch.count(to, len, received);
            threads::preemption_point();
        }
    }
}

impl End {
    /// Has the guest receive a frame, or those that it is cut into.
    fn receive(&self, len: u64, offload: &Offload, source: &impl Source) -> Result<(), Lost> {
        let ram = Ram::of_another(&self.memory);
        let mut last = Ok(());
        let mut give = |frame: &Frame<'_>| {
            let received = self.virtio.with(|card| card.receive(frame, source, &ram));
            last = last.and(received);
            threads::preemption_point();
        };
        if self.virtio.with(|card| card.accepts(offload)) {
            give(&Frame { head: &[], rest: 0..len, offload: *offload });
        } else if finish(len, offload, source, give).is_err() {
            last = Err(Lost::Unreadable);
        }
        self.virtio.drive();
        last
    }
}

/// The time, in nanoseconds.
fn now() -> u64 {
    timer::instant(timer::ticks()).as_nanos()
}
