//! The dispatcher beside a naive model of it: a list of flows, whose numbers begin at 0, and do not go round; and each
//! of its answers follows from what both sides have said so far.

use mayfly_dispatch::{Dispatcher, Flow, Port, Uplink};
use proptest::prelude::*;

use crate::wire::{TIMERS, Tcp, client, config, fork};

/// How many flows may be there, and how many clients there are.
const FLOWS: u16 = 3;
const CLIENTS: u8 = 5;

/// What a segment says, in numbers that begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    seq: u64,
    ack: Option<u64>,
    syn: bool,
    fin: bool,
    rst: bool,
    data: u64,
}

impl Said {
    fn end(self) -> u64 {
        self.seq + self.data + u64::from(self.syn) + u64::from(self.fin)
    }

    fn is_first(self) -> bool {
        self.syn && !self.fin && !self.rst && self.ack.is_none()
    }

    /// On the wire. Each side's numbers begin where they soon go round.
    fn on_wire(self, by: Tcp, (own, other): (u32, u32)) -> Vec<u8> {
        let mut segment = by.seq(own.wrapping_add(self.seq as u32)).data(self.data as usize);
        segment.ack = self.ack.map(|ack| other.wrapping_add(ack as u32));
        (segment.syn, segment.fin, segment.rst) = (self.syn, self.fin, self.rst);
        segment.bytes()
    }
}

#[derive(Clone, Debug)]
struct Known {
    client: u8,
    flow: Flow,
    syn: Said,
    begun: u64,
    /// Whether its fork is there, and since when it is over.
    forked: bool,
    over: Option<u64>,
    /// When the client has last acknowledged something.
    heard: Option<u64>,
    /// What was said since its fork is there: by the client, or by the fork.
    log: Vec<(bool, Said)>,
    last: Option<Vec<u8>>,
}

/// The number after a FIN, and whether the other side has acknowledged it.
#[derive(Default)]
struct Fin {
    end: Option<u64>,
    is_acked: bool,
}

impl Fin {
    fn say(&mut self, end: u64) {
        if !self.is_acked {
            self.end = Some(end);
        }
    }

    fn acknowledge(&mut self, ack: u64) {
        self.is_acked |= self.end == Some(ack);
    }
}

/// What follows from a log.
#[derive(Default)]
struct Follows {
    /// The client's next number, as far as nothing is missing.
    next: u64,
    acked: Option<u64>,
    /// What the client has acknowledged, and what the fork has sent.
    sent: Option<(u64, u64)>,
    client_fin: Fin,
    fork_fin: Fin,
    /// Whether the last that was said acknowledges something.
    hears: bool,
    is_open: bool,
}

impl Known {
    fn new(client: u8, flow: Flow, syn: Said, begun: u64) -> Self {
        let (forked, over, heard, log, last) = (false, None, None, Vec::new(), None);
        Self { client, flow, syn, begun, forked, over, heard, log, last }
    }

    fn follows(&self) -> Follows {
        let mut so_far = Follows { next: self.syn.end(), ..Follows::default() };
        for (is_client, said) in &self.log {
            so_far.hears = false;
            if said.rst {
                continue;
            }
            if *is_client {
                so_far.client_says(*said);
            } else {
                so_far.fork_says(*said);
            }
        }
        so_far
    }

    fn deadline(&self) -> u64 {
        match (self.over, self.heard) {
            (Some(over), _) => over + TIMERS.remembered,
            (_, None) => self.begun + TIMERS.half_open,
            (_, Some(heard)) => (heard + TIMERS.abandoned).min(self.begun + TIMERS.longest),
        }
    }
}

impl Follows {
    fn client_says(&mut self, said: Said) {
        let (Some(ack), Some((acked, sent)), false) = (said.ack, self.sent, said.syn) else {
            return;
        };
        if ack > sent {
            return;
        }
        let is_in_order = said.seq <= self.next && said.end() >= self.next;
        if said.fin && (is_in_order || self.client_fin.end.is_none()) {
            self.client_fin.say(said.end());
        }
        if ack < acked {
            return;
        }
        (self.hears, self.is_open, self.sent) = (true, true, Some((ack, sent)));
        self.fork_fin.acknowledge(ack);
        if is_in_order {
            self.next = said.end();
        }
    }

    fn fork_says(&mut self, said: Said) {
        if let Some(ack) = said.ack {
            self.acked = self.acked.max(Some(ack));
            self.next = self.next.max(ack);
            self.client_fin.acknowledge(ack);
            if said.syn && !self.is_open {
                self.next = ack;
                self.sent = Some((said.seq + 1, said.seq + 1));
            }
        }
        self.sent = self.sent.map(|(acked, sent)| (acked, sent.max(said.end())));
        if said.fin {
            self.fork_fin.say(said.end());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Client(u8, Said),
    Fork(u8, Said),
    Forked(u8),
    Failed(u8),
    Time(u64),
}

/// Mostly what belongs there: a SYN, what follows it, and FINs.
fn any_said() -> impl Strategy<Value = Said> {
    let flags = prop_oneof![
        3 => Just((true, false, false)),
        4 => Just((false, false, false)),
        4 => Just((false, true, false)),
        1 => Just((false, false, true)),
        1 => any::<(bool, bool, bool)>(),
    ];
    (
        0..6_u64,
        prop::option::weighted(0.8, 0..5_u64),
        flags,
        prop_oneof![3 => Just(0), 1 => 0..3_u64],
    )
        .prop_map(|(seq, ack, (syn, fin, rst), data)| Said { seq, ack, syn, fin, rst, data })
}

fn any_step() -> impl Strategy<Value = Step> {
    let syn = Said { seq: 0, ack: None, syn: true, fin: false, rst: false, data: 0 };
    prop_oneof![
        3 => (0..CLIENTS, 0..6_u64).prop_map(move |(who, seq)| Step::Client(who, Said { seq, ..syn })),
        8 => (0..CLIENTS, any_said()).prop_map(|(who, said)| Step::Client(who, said)),
        8 => (0..CLIENTS, any_said()).prop_map(|(who, said)| Step::Fork(who, said)),
        4 => (0..CLIENTS).prop_map(Step::Forked),
        1 => (0..CLIENTS).prop_map(Step::Failed),
        2 => prop_oneof![4 => 0..60_u64, 1 => 0..1_200_u64].prop_map(Step::Time),
    ]
}

/// A whole conversation of a client: so that there are flows that come to their ends.
fn conversation() -> impl Strategy<Value = Vec<Step>> {
    let said = |seq, ack, syn, fin| Said { seq, ack, syn, fin, rst: false, data: 0 };
    (0..CLIENTS, any::<bool>()).prop_map(move |(who, is_fork_first)| {
        let mut steps = vec![
            Step::Client(who, said(0, None, true, false)),
            Step::Forked(who),
            Step::Fork(who, said(0, Some(1), true, false)),
            Step::Client(who, said(1, Some(1), false, false)),
        ];
        steps.extend(if is_fork_first {
            [
                Step::Fork(who, said(1, Some(1), false, true)),
                Step::Client(who, said(1, Some(2), false, true)),
                Step::Fork(who, said(2, Some(2), false, false)),
            ]
        } else {
            [
                Step::Client(who, said(1, Some(1), false, true)),
                Step::Fork(who, said(1, Some(2), false, true)),
                Step::Client(who, said(2, Some(2), false, false)),
            ]
        });
        steps
    })
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let part = prop_oneof![2 => any_step().prop_map(|step| vec![step]), 1 => conversation()];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

/// What the model expects of a frame from outside.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Fork,
    Kept,
    Deliver(bool),
    Cancelled,
    Answer(Vec<u8>),
    Dropped,
}

struct Model {
    known: Vec<Known>,
    /// Those that have ended while their fork was being made.
    vain: Vec<(u8, Flow)>,
    now: u64,
}

impl Model {
    fn live(&self) -> usize {
        self.known.iter().filter(|known| known.over.is_none()).count() + self.vain.len()
    }

    fn outside(&mut self, client: u8, said: Said) -> Expected {
        let begins = said.is_first() && said.data == 0;
        let has_room = self.live() < usize::from(FLOWS);
        let begin = if begins && has_room { Expected::Fork } else { Expected::Dropped };
        let now = self.now;
        let Some(known) = self.known.iter_mut().find(|known| known.client == client) else {
            return begin;
        };
        let follows = known.follows();
        if known.over.is_some() {
            let fin = follows.client_fin.end.unwrap();
            let is_again = said.fin && !said.syn && !said.rst && said.end() == fin;
            return match () {
                () if begins && said.seq >= fin => begin,
                () if is_again => Expected::Answer(known.last.clone().unwrap()),
                () => Expected::Dropped,
            };
        }
        let resets = said.rst && (said.seq == follows.next || follows.acked == Some(said.seq));
        if !known.forked {
            return match () {
                () if resets => Expected::Cancelled,
                () if begins => {
                    known.syn = said;
                    Expected::Kept
                }
                () => Expected::Dropped,
            };
        }
        if said.rst {
            return Expected::Deliver(resets);
        }
        known.log.push((true, said));
        let follows = known.follows();
        if follows.hears {
            known.heard = Some(now);
        }
        Expected::Deliver(follows.client_fin.is_acked && follows.fork_fin.is_acked)
    }

    /// Whether a fork's segment goes out, and whether it is the last.
    fn inside(known: &mut Known, said: Said, isns: (u32, u32)) -> Option<bool> {
        if said.syn && (said.ack.is_none() || said.fin || said.rst) {
            return None;
        }
        if said.rst {
            let sent = known.follows().sent;
            let is_of_sent = sent.is_some_and(|(acked, sent)| (acked..=sent).contains(&said.seq));
            return Some(said.ack.is_some() || is_of_sent);
        }
        known.log.push((false, said));
        let follows = known.follows();
        if follows.client_fin.is_acked && said.ack == follows.client_fin.end {
            let (_, seq) = follows.sent.unwrap();
            let last = Said { seq, ack: said.ack, syn: false, fin: false, rst: false, data: 0 };
            known.last = Some(last.on_wire(fork(known.client), (isns.1, isns.0)));
        }
        Some(follows.client_fin.is_acked && follows.fork_fin.is_acked)
    }

    /// A fork is there, or will never be, that a client does not need any more.
    fn leave_in_vain(&mut self, client: u8) -> Option<Flow> {
        let place = self.vain.iter().position(|(of, _)| *of == client)?;
        Some(self.vain.swap_remove(place).1)
    }

    /// What is due ends.
    fn pass(&mut self) {
        let now = self.now;
        let due = self.known.extract_if(.., |known| known.deadline() <= now);
        let vain = due.filter(|known| !known.forked && known.over.is_none());
        self.vain.extend(vain.map(|known| (known.client, known.flow)));
    }

    fn close(&mut self, flow: Flow, is_remembered: bool) {
        let known = self.known.iter_mut().find(|known| known.flow == flow).unwrap();
        known.over = Some(self.now);
        if !known.forked {
            self.vain.push((known.client, flow));
        }
        if !is_remembered {
            self.known.retain(|known| known.flow != flow);
        }
    }
}

fn run(steps: Vec<Step>, isns: (u32, u32)) -> Result<(), TestCaseError> {
    // All that are over have room.
    let mut dispatcher = Dispatcher::try_new(config(FLOWS, u16::from(CLIENTS))).unwrap();
    let mut model = Model { known: Vec::new(), vain: Vec::new(), now: 0 };
    for step in steps {
        match step {
            Step::Client(who, said) => {
                let bytes = said.on_wire(client(who), isns);
                let expected = model.outside(who, said);
                let got = dispatcher.from_outside(&bytes, model.now);
                let own = model.known.iter().find(|known| known.client == who);
                let own = own.map(|known| known.flow);
                let named = match got {
                    Uplink::Fork(flow) => {
                        prop_assert!(own != Some(flow));
                        model.known.retain(|known| known.client != who);
                        model.known.push(Known::new(who, flow, said, model.now));
                        Expected::Fork
                    }
                    Uplink::Kept => Expected::Kept,
                    Uplink::Deliver(flow) => {
                        prop_assert_eq!(own, Some(flow));
                        Expected::Deliver(false)
                    }
                    Uplink::DeliverLast(flow) => {
                        prop_assert_eq!(own, Some(flow));
                        model.close(flow, !said.rst);
                        Expected::Deliver(true)
                    }
                    Uplink::Cancelled(flow) => {
                        prop_assert_eq!(own, Some(flow));
                        model.close(flow, false);
                        Expected::Cancelled
                    }
                    Uplink::Answer(bytes) => Expected::Answer(bytes.to_vec()),
                    Uplink::Dropped(_) => Expected::Dropped,
                };
                prop_assert_eq!(named, expected);
            }
            Step::Fork(who, said) => {
                let mut forks = model.known.iter_mut();
                let Some(known) = forks.find(|known| known.client == who) else { continue };
                let bytes = said.on_wire(fork(who), (isns.1, isns.0));
                let (flow, is_there) = (known.flow, known.forked && known.over.is_none());
                let expected = if is_there { Model::inside(known, said, isns) } else { None };
                let got = match dispatcher.from_fork(flow, &bytes, model.now) {
                    Port::Send => Some(false),
                    Port::SendLast => {
                        model.close(flow, !said.rst);
                        Some(true)
                    }
                    Port::Answer(_) | Port::Dropped(_) => None,
                };
                prop_assert_eq!(got, expected);
            }
            Step::Forked(who) => {
                if let Some(flow) = model.leave_in_vain(who) {
                    let before = dispatcher.counts().in_vain;
                    prop_assert_eq!(dispatcher.forked(flow), None);
                    prop_assert_eq!(dispatcher.counts().in_vain, before + 1);
                    continue;
                }
                let mut waiting = model.known.iter_mut();
                let Some(known) = waiting.find(|known| known.client == who) else { continue };
                let syn = known.syn.on_wire(client(who), isns);
                let expected = (!known.forked).then_some(&syn[..]);
                prop_assert_eq!(dispatcher.forked(known.flow), expected);
                known.forked = true;
            }
            Step::Failed(who) => {
                if let Some(flow) = model.leave_in_vain(who) {
                    prop_assert!(!dispatcher.failed(flow));
                    continue;
                }
                let Some(known) = model.known.iter().find(|known| known.client == who) else {
                    continue;
                };
                prop_assert_eq!(dispatcher.failed(known.flow), known.over.is_none());
                if known.over.is_none() {
                    let flow = known.flow;
                    model.known.retain(|known| known.flow != flow);
                }
            }
            Step::Time(later) => {
                model.now += later;
                let now = model.now;
                let mut got: Vec<_> = std::iter::from_fn(|| dispatcher.expired(now)).collect();
                let due = model.known.iter().filter(|known| known.deadline() <= now);
                let due = due.filter(|known| known.over.is_none()).map(|known| known.flow);
                let mut expected: Vec<_> = due.collect();
                got.sort();
                expected.sort();
                prop_assert_eq!(got, expected);
                model.pass();
            }
        }
        prop_assert_eq!(usize::from(dispatcher.live()), model.live());
        let first = model.known.iter().map(Known::deadline).min();
        let said = dispatcher.next_deadline();
        prop_assert!(first.is_none() || said.is_some_and(|said| said <= first.unwrap()));
    }
    Ok(())
}

proptest! {
    #[test]
    fn each_frame_goes_where_the_model_says(
        steps in any_steps(),
        isns in prop_oneof![Just((100, 900)), Just((u32::MAX - 1, u32::MAX - 2)), any::<(u32, u32)>()],
    ) {
        run(steps, isns)?;
    }
}
