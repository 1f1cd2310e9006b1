//! TCP of others on both sides, over a wire that loses, repeats and delays frames: each client is answered by a fork of its
//! own, and a fork is destroyed when its TCP is over, and not before.
//!
//! Where frames are lost, not all clients are answered: by a segment that comes twice, TCP of smoltcp 0.12 forgets that it
//! has to send its own again. Timers end such flows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mayfly_dispatch::{Config, Dispatcher, End, Flow, Port, Timers, Uplink};
use proptest::prelude::*;
use smoltcp::iface::{Config as Interfaced, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, Ipv4Address};

use crate::wire::{IP, PORT, ROUTER, TEMPLATE, config};

const CLIENT: Ipv4Address = Ipv4Address::new(10, 0, 2, 2);
const MILLISECOND: u64 = 1_000_000;

/// What a card has received, and what it sends.
#[derive(Default)]
struct Card {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, then: F) -> R {
        then(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, then: F) -> R {
        let mut frame = vec![0; len];
        let result = then(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Card {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Received(frame), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1_514;
        capabilities
    }
}

/// A machine with TCP.
struct Host {
    card: Card,
    interface: Interface,
    sockets: SocketSet<'static>,
}

impl Host {
    fn new(mac: [u8; 6], ip: Ipv4Address, seed: u64, now: Instant) -> Self {
        let mut card = Card::default();
        let mut config = Interfaced::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut card, now);
        interface.update_ip_addrs(|own| own.push(IpCidr::new(ip.into(), 24)).unwrap());
        Self { card, interface, sockets: SocketSet::new(Vec::new()) }
    }

    fn socket(&mut self) -> SocketHandle {
        let buffer = || SocketBuffer::new(vec![0; 4096]);
        self.sockets.add(Socket::new(buffer(), buffer()))
    }

    fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.card, &mut self.sockets);
    }
}

struct Fork {
    host: Host,
    socket: SocketHandle,
    heard: Vec<u8>,
    has_said: bool,
}

impl Fork {
    /// The template listens already.
    fn new(number: u64, now: Instant) -> Self {
        let mut host = Host::new(TEMPLATE, IP.into(), number, now);
        let socket = host.socket();
        host.sockets.get_mut::<Socket>(socket).listen(PORT).unwrap();
        Self { host, socket, heard: Vec::new(), has_said: false }
    }

    /// Answers what ends with a full stop, and hangs up.
    fn work(&mut self, number: u64, now: Instant) {
        self.host.poll(now);
        let socket = self.host.sockets.get_mut::<Socket>(self.socket);
        while let Some(bytes) = read(socket) {
            self.heard.extend(bytes);
        }
        if !self.has_said && self.heard.ends_with(b".") {
            socket.send_slice(format!("{number}!").as_bytes()).unwrap();
            socket.close();
            self.has_said = true;
        }
        self.host.poll(now);
    }
}

impl Fork {
    /// Whether nobody needs its TCP any more but for an acknowledgement that is lost.
    fn is_over(&self) -> bool {
        let state = self.host.sockets.get::<Socket>(self.socket).state();
        matches!(state, State::Closed | State::TimeWait)
    }
}

fn read(socket: &mut Socket<'_>) -> Option<Vec<u8>> {
    if !socket.can_recv() {
        return None;
    }
    socket.recv(|bytes| (bytes.len(), bytes.to_vec())).ok()
}

struct Client {
    socket: SocketHandle,
    /// It closes its side when it has asked, not when it has heard all.
    is_first: bool,
    has_asked: bool,
    heard: Vec<u8>,
}

impl Client {
    fn work(&mut self, host: &mut Host) {
        let socket = host.sockets.get_mut::<Socket>(self.socket);
        if !self.has_asked && socket.can_send() {
            socket.send_slice(b"who are you.").unwrap();
            self.has_asked = true;
            if self.is_first {
                socket.close();
            }
        }
        while let Some(bytes) = read(socket) {
            self.heard.extend(bytes);
        }
        if self.has_asked && !socket.may_recv() {
            socket.close();
        }
    }

    fn is_answered(&self) -> bool {
        self.heard.ends_with(b"!")
    }
}

/// What becomes of the next frame on the wire: it arrives, is lost, comes twice, or after the next one.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    Later,
}

#[derive(Default)]
struct Wire {
    fates: VecDeque<Fate>,
    late: VecDeque<Vec<u8>>,
}

impl Wire {
    /// What arrives of what is sent. When there are no fates left, all does.
    fn carry(&mut self, sent: &mut VecDeque<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        while let Some(frame) = sent.pop_front() {
            let late = self.late.pop_front();
            match self.fates.pop_front().unwrap_or(Fate::Arrives) {
                Fate::Arrives => arrived.push(frame),
                Fate::Lost => {}
                Fate::Twice => arrived.extend([frame.clone(), frame]),
                Fate::Later => self.late.push_back(frame),
            }
            arrived.extend(late);
        }
        arrived
    }
}

struct World {
    dispatcher: Dispatcher,
    clients: Vec<Client>,
    outside: Host,
    forks: BTreeMap<u64, (Flow, Fork)>,
    /// In, and out.
    wires: [Wire; 2],
    out: VecDeque<Vec<u8>>,
    now: u64,
}

impl World {
    fn new(clients: &[bool], fates: [Vec<Fate>; 2]) -> Self {
        let start = Instant::from_millis(0);
        let mut outside = Host::new(ROUTER, CLIENT, 7, start);
        let each = clients.iter().zip(5_000..).map(|(is_first, port)| {
            let socket = outside.socket();
            let Host { interface, sockets, .. } = &mut outside;
            let to = (Ipv4Address::from(IP), PORT);
            sockets.get_mut::<Socket>(socket).connect(interface.context(), to, port).unwrap();
            Client { socket, is_first: *is_first, has_asked: false, heard: Vec::new() }
        });
        let clients = each.collect();
        let minute = 60_000 * MILLISECOND;
        let timers = Timers {
            half_open: minute,
            abandoned: minute,
            longest: 60 * minute,
            remembered: minute,
        };
        let config = Config { timers, ..config(8, 8) };
        Self {
            dispatcher: Dispatcher::try_new(config).unwrap(),
            clients,
            outside,
            forks: BTreeMap::new(),
            wires: fates.map(|fates| Wire { fates: fates.into(), late: VecDeque::new() }),
            out: VecDeque::new(),
            now: 0,
        }
    }

    /// A hundredth of a second.
    fn step(&mut self) {
        self.now += 10;
        let now = Instant::from_millis(self.now.cast_signed());
        self.outside.poll(now);
        for client in &mut self.clients {
            client.work(&mut self.outside);
        }
        self.outside.poll(now);
        for frame in self.wires[0].carry(&mut self.outside.card.sent) {
            self.arrive(&frame, now);
        }
        while let Some(flow) = self.dispatcher.expired(self.now * MILLISECOND) {
            self.forks.remove(&flow.number()).unwrap();
        }
        let numbers: Vec<u64> = self.forks.keys().copied().collect();
        for number in numbers {
            self.work(number, now);
        }
        let arrived = self.wires[1].carry(&mut self.out);
        self.outside.card.received.extend(arrived);
    }

    fn arrive(&mut self, frame: &[u8], now: Instant) {
        let at = self.now * MILLISECOND;
        match self.dispatcher.from_outside(frame, at) {
            Uplink::Fork(flow) => {
                let mut fork = Fork::new(flow.number(), now);
                let syn = self.dispatcher.forked(flow).unwrap().to_vec();
                fork.host.card.received.push_back(syn);
                self.forks.insert(flow.number(), (flow, fork));
            }
            Uplink::Deliver(flow) => {
                let (_, fork) = self.forks.get_mut(&flow.number()).unwrap();
                fork.host.card.received.push_back(frame.to_vec());
            }
            Uplink::DeliverLast(flow) => {
                let (_, mut fork) = self.forks.remove(&flow.number()).unwrap();
                fork.host.card.received.push_back(frame.to_vec());
                fork.host.poll(now);
                assert!(fork.is_over());
            }
            Uplink::Answer(bytes) => self.out.push_back(bytes.to_vec()),
            Uplink::Kept | Uplink::Cancelled(_) | Uplink::Dropped(_) => {}
        }
    }

    fn work(&mut self, number: u64, now: Instant) {
        let Some((flow, fork)) = self.forks.get_mut(&number) else { return };
        fork.work(number, now);
        while let Some(frame) = fork.host.card.sent.pop_front() {
            match self.dispatcher.from_fork(*flow, &frame, self.now * MILLISECOND) {
                Port::Send => self.out.push_back(frame),
                Port::SendLast => {
                    self.out.push_back(frame);
                    assert!(fork.is_over());
                    self.forks.remove(&number);
                    return;
                }
                Port::Answer(bytes) => fork.host.card.received.push_back(bytes.to_vec()),
                Port::Dropped(_) => {}
            }
        }
    }
}

fn any_fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        3 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Twice),
        1 => Just(Fate::Later),
    ];
    prop::collection::vec(fate, 0..60)
}

/// Has clients ask, until all are answered, and all forks destroyed; or for two minutes. Returns what became of it.
fn run(clients: &[bool], fates: [Vec<Fate>; 2]) -> World {
    let mut world = World::new(clients, fates);
    for _ in 0..12_000 {
        world.step();
        if world.clients.iter().all(Client::is_answered) && world.forks.is_empty() {
            break;
        }
    }
    world
}

#[test]
fn where_nothing_is_lost_each_fork_is_destroyed_when_both_have_closed() {
    for clients in [&[false][..], &[true], &[false, true, false, true, true, false]] {
        let world = run(clients, [vec![], vec![]]);
        let answers: BTreeSet<_> = world.clients.iter().map(|client| &client.heard).collect();
        assert_eq!(answers.len(), clients.len(), "{answers:?}");
        assert!(world.clients.iter().all(Client::is_answered), "{answers:?}");
        let counts = world.dispatcher.counts();
        let count = clients.len() as u64;
        assert_eq!((counts.asked, counts.forked, world.dispatcher.live()), (count, count, 0));
        assert_eq!(counts.ended.of(End::Closed), count);
        assert_eq!((counts.dropped.total(), counts.refused.total()), (0, 0));
    }
}

proptest! {
    #[test]
    fn a_fork_is_destroyed_when_its_tcp_is_over_whatever_is_lost(
        clients in prop::collection::vec(any::<bool>(), 1..6),
        fates in [any_fates(), any_fates()],
    ) {
        let mut world = run(&clients, fates);
        let answered = world.clients.iter().filter(|client| client.is_answered());
        let answers: Vec<_> = answered.map(|client| client.heard.clone()).collect();
        let forks: BTreeSet<_> = answers.iter().collect();
        prop_assert_eq!(forks.len(), answers.len(), "two were answered by one fork");
        // Of a client that was not answered there may be a second one: it has sent its SYN again.
        while let Some(flow) = world.dispatcher.expired(u64::MAX) {
            prop_assert!(world.forks.remove(&flow.number()).is_some());
        }
        prop_assert!(world.forks.is_empty());
        let counts = world.dispatcher.counts();
        prop_assert!(counts.forked >= answers.len() as u64);
        prop_assert_eq!(counts.ended.total(), counts.asked);
    }
}
