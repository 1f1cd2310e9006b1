//! The network of the machine's VMs: their cards, and the switch between them.
//!
//! The thread of a VM's devices carries what the VM sends: from the sender's memory into the buffers of each receiver, and
//! then it tells the receiver. So the sender's account pays for its frames, and a receiver without buffers loses its own
//! frames, and holds up nobody. The thread waits for no memory of the receiver's.
//!
//! **Locks.** The switch has a spin lock, which is held for a decision. A card has a lock that threads sleep for, its own
//! vCPUs among them. One card is locked at a time: a frame is taken from its sender's card, then given to each receiver's,
//! and then given back. So two VMs that send to each other do not wait for each other. A thread that has a card locked
//! keeps its processor, and waits for no memory: neither the sender nor the receiver can hold up the other one's vCPUs.
//!
//! **What is judged is what is sent.** The switch decides by the beginning of a frame, of which there is a copy: the guest
//! may change its memory at any time.
//!
//! **Ends.** A card is on the switch while its VM's devices are served. When it leaves, it waits for the threads that are
//! just giving it a frame. So nobody else frees the VM's memory.

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
/// The most networks.
const MOST_NETWORKS: usize = 256;

/// Where a port leads.
struct End {
    virtio: Arc<Virtio<Net, [u8; 6]>>,
    memory: Arc<GuestMemory>,
}

/// The switch, and the names of its networks, each known by its place.
struct Network {
    switch: Switch<Arc<End>>,
    names: Vec<String>,
}

static NETWORK: SpinLock<Network> =
    SpinLock::new(Network { switch: Switch::new(), names: Vec::new() });

impl Network {
    fn number(&mut self, name: String) -> Result<u32, NoPort> {
        let known = self.names.iter().position(|known| *known == name);
        let number = known.unwrap_or(self.names.len());
        if known.is_none() {
            if number == MOST_NETWORKS || self.names.try_reserve(1).is_err() {
                return Err(NoPort::Full);
            }
            self.names.push(name);
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
        let end = Arc::new(End { virtio: self.registers(), memory: Arc::clone(memory) });
        let name = self.config.network.clone().unwrap_or_default();
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
        let Ok(mut targets) = sent else { return };
        while !is_over() {
            let target = NETWORK.lock().switch.next_target(&mut targets);
            let Some((to, end)) = target else { return };
            match end.receive(len, &offload, &source) {
                Err(Lost::Unreadable) => NETWORK.lock().switch.refuse(port),
                received => NETWORK.lock().switch.count(to, len, received.is_ok()),
            }
            threads::preemption_point();
        }
    }
}

impl End {
    /// Has the guest receive a frame, or those that it is cut into, up to the first that is lost.
    fn receive(&self, len: u64, offload: &Offload, source: &impl Source) -> Result<(), Lost> {
        let ram = Ram::at_once(&self.memory);
        let mut received = Ok(());
        let whole = Frame { head: &[], rest: 0..len, offload: *offload };
        let is_whole = self.virtio.with(|card| {
            let accepts = card.accepts(offload);
            if accepts {
                received = card.receive(&whole, source, &ram);
            }
            accepts
        });
        if !is_whole {
            let cut = finish(len, offload, source, |frame| {
                received = self.virtio.with(|card| card.receive(frame, source, &ram));
                threads::preemption_point();
                received.is_ok()
            });
            if cut.is_err() {
                received = Err(Lost::Unreadable);
            }
        }
        self.virtio.drive();
        received
    }
}

/// The time, in nanoseconds.
fn now() -> u64 {
    timer::instant(timer::ticks()).as_nanos()
}
