//! The ports of the switch, and how a frame is given to those that it is for.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_desk::Gate;
use mayfly_devices::virtio::net::{Frame, Lost, Net, Offload, Source, finish};
use mayfly_hypervisor::card;
use mayfly_switch::{Config, Counts, Limits, NoPort, Place, Port, Switch, Targets};

use super::desk::Desk;
use super::outgoing;
use super::outgoing::UPLINK;
use crate::bare::devices::virtio::{Ram, Virtio};
use crate::bare::own;
use crate::bare::own::card::OwnCard;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::share::pause;

/// The most networks.
const MOST_NETWORKS: usize = 256;

/// Where a port leads.
pub(crate) enum End {
    Card { virtio: Arc<Virtio<Net, [u8; 6]>>, memory: Arc<GuestMemory>, gate: Arc<Gate> },
    Uplink(&'static OwnCard),
    Desk(Arc<Desk>),
}

/// The switch, and the names of its networks, each known by its place.
pub(super) struct Network {
    pub(super) switch: Switch<Arc<End>>,
    names: Vec<String>,
    pub(super) uplink: Uplink,
}

/// The way out.
pub(super) struct Uplink {
    /// Its port, and the number of the network, while it has one.
    pub(super) port: Option<(Port, u32)>,
    /// What may come in.
    pub(super) limits: Limits,
    /// What became of the frames of ports that it has had.
    pub(super) total: Counts,
}

pub(super) static NETWORK: SpinLock<Network> = SpinLock::new(Network {
    switch: Switch::new(),
    names: Vec::new(),
    uplink: Uplink { port: None, limits: Limits::NONE, total: Counts::NONE },
});

impl Network {
    /// The number of the network of that name.
    pub(super) fn number(&mut self, name: String) -> Result<u32, NoPort> {
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

    /// A card has come to `network`, which is to have this way out, if any. Returns the way out where it is not needed.
    pub(super) fn lead_out(&mut self, network: u32, out: Option<Arc<End>>) -> Option<Arc<End>> {
        let out = out?;
        if self.uplink.port.is_some() {
            return Some(out);
        }
        let limits = self.uplink.limits;
        let config = Config { place: Place::Uplink, network, isolated: false, limits };
        // Where the switch is full, the network has no way out, and the frames for there are counted as such to nobody.
        self.uplink.port = self.switch.try_add(config, out, now()).ok().map(|port| (port, network));
        None
    }

    /// A card has gone. The way out goes with the last card of its network, and is returned; and names are forgotten with
    /// the last card.
    pub(super) fn forget(&mut self) -> Option<Arc<End>> {
        let out = self.lead_out_no_more();
        if self.switch.is_empty() {
            self.names = Vec::new();
        }
        out
    }

    fn lead_out_no_more(&mut self) -> Option<Arc<End>> {
        let (port, _) = self.uplink.port.filter(|(_, network)| !self.switch.has_cards(*network))?;
        self.uplink.port = None;
        self.uplink.total += self.switch.counts(port).unwrap_or_default();
        self.switch.remove(port)
    }
}

/// A card with that address comes to the network that `card` says, and leads to `end`.
///
/// # Errors
///
/// Why it does not.
pub(super) fn join(card: &card::Card, mac: [u8; 6], end: Arc<End>) -> Result<Port, NoPort> {
    let name = card.network.clone().unwrap_or_default();
    let leads_out = name == UPLINK;
    let out = own::card::get().filter(|_| leads_out).map(|card| Arc::new(End::Uplink(card)));
    let mut network = NETWORK.lock();
    let config = Config {
        place: Place::Card(mac),
        network: network.number(name)?,
        isolated: card.isolated,
        limits: Limits { bytes: card.rate, packets: None },
    };
    let port = network.switch.try_add(config, end, now())?;
    let out = network.lead_out(config.network, out);
    drop(network);
    drop(out);
    Ok(port)
}

/// A card leaves its network. Returns what became of its frames, when nobody is giving it one any more.
pub(super) fn part(port: Port) -> Option<Counts> {
    let (counts, end, out) = {
        let mut network = NETWORK.lock();
        let (counts, end) = (network.switch.counts(port), network.switch.remove(port));
        let out = network.forget();
        (counts, end, out)
    };
    drop(out);
    if let Some(end) = end {
        alone(&end);
    }
    counts
}

/// Waits until nobody else has an end: those that have it are giving it a frame.
pub(super) fn alone(end: &Arc<End>) {
    while Arc::strong_count(end) > 1 {
        pause();
    }
}

/// Gives a frame that `from` has sent to all that it is for. When it `is_over`, those that do not have it lose it.
pub(super) fn deliver(
    from: Port,
    mut targets: Targets,
    (len, offload, source): (u64, &Offload, &impl Source),
    is_over: &impl Fn() -> bool,
) {
    loop {
        let target = NETWORK.lock().switch.next_target(&mut targets);
        let Some((to, end)) = target else { return };
        let received =
            if is_over() { Err(Lost::NotWorking) } else { end.receive(from, len, offload, source) };
        match received {
            Err(Lost::Unreadable) => NETWORK.lock().switch.refuse(from),
            received => NETWORK.lock().switch.count(to, len, received.is_ok()),
        }
        threads::preemption_point();
    }
}

impl End {
    /// Has the end receive a frame of `from`, or those that it is cut into, up to the first that is lost.
    pub(super) fn receive(
        &self,
        from: Port,
        len: u64,
        offload: &Offload,
        source: &impl Source,
    ) -> Result<(), Lost> {
        match self {
            Self::Card { virtio, memory, gate } => {
                let _inside = gate.enter().ok_or(Lost::NotWorking)?;
                receive_whole_or_cut(virtio, memory, from, len, offload, source)
            }
            Self::Uplink(card) => cut(len, offload, source, |frame| {
                outgoing::send(card, from.number(), frame, source)
            }),
            Self::Desk(desk) => {
                cut(len, offload, source, |frame| desk.receive(from, frame, source))
            }
        }
    }
}

/// Has a guest receive a frame: as it is, if its driver does what is left to be done.
fn receive_whole_or_cut(
    virtio: &Virtio<Net, [u8; 6]>,
    memory: &GuestMemory,
    from: Port,
    len: u64,
    offload: &Offload,
    source: &impl Source,
) -> Result<(), Lost> {
    let ram = Ram::at_once(memory);
    let whole = Frame { head: &[], rest: 0..len, offload: *offload };
    // A card whose vCPUs keep its lock from others loses the frame.
    let busy = Err(Lost::NoRoom);
    let received = virtio.act_soon(|card| {
        card.accepts(offload).then(|| card.receive(from.number(), &whole, source, &ram))
    });
    match received {
        None => busy,
        Some(Some(received)) => received,
        Some(None) => cut(len, offload, source, |frame| {
            virtio.act_soon(|card| card.receive(from.number(), frame, source, &ram)).unwrap_or(busy)
        }),
    }
}

/// Gives the frames that a frame comes to, when nothing is left to be done, to `each`, up to the first that is lost.
pub(super) fn cut(
    len: u64,
    offload: &Offload,
    source: &impl Source,
    mut each: impl FnMut(&Frame<'_>) -> Result<(), Lost>,
) -> Result<(), Lost> {
    let mut received = Ok(());
    let made = finish(len, offload, source, |frame| {
        received = each(frame);
        threads::preemption_point();
        received.is_ok()
    });
    made.map_err(|_| Lost::Unreadable).and(received)
}

/// The time, in nanoseconds.
pub(crate) fn now() -> u64 {
    timer::instant(timer::ticks()).as_nanos()
}
