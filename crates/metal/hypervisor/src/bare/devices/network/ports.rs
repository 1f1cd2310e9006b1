//! The ports of the switch, and how a frame is given to those that it is for.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_devices::virtio::net::{Frame, Lost, Net, Offload, Source, finish};
use mayfly_switch::{Config, Counts, Limits, NoPort, Place, Port, Switch, Targets};

use super::outgoing;
use crate::bare::devices::virtio::{Ram, Virtio};
use crate::bare::own::card::OwnCard;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::world::memory::GuestMemory;

/// The most networks.
const MOST_NETWORKS: usize = 256;

/// Where a port leads.
pub(super) enum End {
    Card { virtio: Arc<Virtio<Net, [u8; 6]>>, memory: Arc<GuestMemory> },
    Uplink(&'static OwnCard),
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
        let received = match is_over() {
            true => Err(Lost::NotWorking),
            false => end.receive(from, len, offload, source),
        };
        match received {
            Err(Lost::Unreadable) => NETWORK.lock().switch.refuse(from),
            received => NETWORK.lock().switch.count(to, len, received.is_ok()),
        }
        threads::preemption_point();
    }
}

impl End {
    /// Has the end receive a frame of `from`, or those that it is cut into, up to the first that is lost.
    fn receive(
        &self,
        from: Port,
        len: u64,
        offload: &Offload,
        source: &impl Source,
    ) -> Result<(), Lost> {
        match self {
            Self::Card { virtio, memory } => {
                receive_whole_or_cut(virtio, memory, len, offload, source)
            }
            Self::Uplink(card) => cut(len, offload, source, |frame| {
                outgoing::send(card, from.number(), frame, source)
            }),
        }
    }
}

/// Has a guest receive a frame: as it is, if its driver does what is left to be done.
fn receive_whole_or_cut(
    virtio: &Virtio<Net, [u8; 6]>,
    memory: &GuestMemory,
    len: u64,
    offload: &Offload,
    source: &impl Source,
) -> Result<(), Lost> {
    let ram = Ram::at_once(memory);
    let whole = Frame { head: &[], rest: 0..len, offload: *offload };
    // A card whose vCPUs keep its lock from others loses the frame.
    let busy = Err(Lost::NoRoom);
    let received =
        virtio.with_soon(|card| card.accepts(offload).then(|| card.receive(&whole, source, &ram)));
    let received = match received {
        None => return busy,
        Some(Some(received)) => received,
        Some(None) => cut(len, offload, source, |frame| {
            virtio.with_soon(|card| card.receive(frame, source, &ram)).unwrap_or(busy)
        }),
    };
    virtio.drive_soon();
    received
}

/// Gives the frames that a frame comes to, when nothing is left to be done, to `each`, up to the first that is lost.
fn cut(
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
pub(super) fn now() -> u64 {
    timer::instant(timer::ticks()).as_nanos()
}
