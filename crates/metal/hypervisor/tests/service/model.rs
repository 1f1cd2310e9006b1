//! Random courses of many connections at a time, held against what must be so of each fork.

use std::collections::BTreeMap;

use mayfly_dispatch::Flow;
use mayfly_hypervisor::service::{Next, Outside, Sent, Service};
use proptest::prelude::*;

use crate::wire::*;

const CLIENTS: u16 = 6;
const FORKS: u16 = 3;
const WAITING: u16 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client sends a segment.
    Client(u16, u32, u32, u8),
    /// A fork sends one.
    Fork(usize, u32, u32, u8),
    /// The thread of the service does what is next.
    Work,
    /// That, but a fork cannot be made.
    WorkInVain,
    /// A fork's card comes.
    Seat(usize),
    /// It goes, and everything that the fork had is free.
    Gone(usize),
    /// Time passes.
    Pass(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![
        4 => Just(SYN), 2 => Just(SYN | ACK), 4 => Just(ACK), 2 => Just(FIN | ACK), 1 => Just(RST), 1 => any::<u8>()
    ];
    let segment = (any::<u16>(), 0..3_u32, 0..3_u32, flags);
    prop_oneof![
        8 => segment.clone().prop_map(|(who, said, heard, flags)| Step::Client(who % CLIENTS, said, heard, flags)),
        6 => segment.prop_map(|(who, said, heard, flags)| Step::Fork(who.into(), said, heard, flags)),
        6 => Just(Step::Work),
        1 => Just(Step::WorkInVain),
        4 => any::<usize>().prop_map(Step::Seat),
        3 => any::<usize>().prop_map(Step::Gone),
        1 => (0..20_000_000_000_u64).prop_map(Step::Pass),
    ]
}

/// A fork, as the embedder knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    had_card: bool,
    was_ended: bool,
}

struct World {
    service: Service<u64>,
    /// Those that are made, by the numbers of their flows.
    forks: BTreeMap<u64, (Flow, Known)>,
    now: u64,
    made: u64,
    gone: u64,
}

impl World {
    fn new() -> Self {
        let service = Service::try_new(offer(FORKS, WAITING).config(MAC), FORKS).unwrap();
        Self { service, forks: BTreeMap::new(), now: 0, made: 0, gone: 0 }
    }

    fn pick(&self, which: usize) -> Option<(u64, Flow)> {
        let count = self.forks.len().max(1);
        self.forks.iter().nth(which % count).map(|(number, (flow, _))| (*number, *flow))
    }

    fn step(&mut self, step: Step) {
        self.now += 1;
        let now = self.now;
        match step {
            Step::Client(who, said, heard, flags) => {
                match self.service.from_outside(&client(who, said, heard, flags), now) {
                    Outside::Give(card) | Outside::GiveLast(Some(card), _)
                        if !self.forks[&card].1.had_card =>
                    {
                        panic!("a frame for a card that never came")
                    }
                    Outside::GiveLast(_, flow) => self.service.over(flow, now),
                    _ => {}
                }
            }
            Step::Fork(which, said, heard, flags) => {
                let Some((_, flow)) = self.pick(which) else { return };
                // For the wrong client as often as not.
                let frame = fork(which as u16 % CLIENTS, said, heard, flags);
                if self.service.from_fork(flow, &frame, now) == Sent::SendLast {
                    self.service.over(flow, now);
                }
            }
            Step::Work => self.work(true),
            Step::WorkInVain => self.work(false),
            Step::Seat(which) => {
                let Some((number, flow)) = self.pick(which) else { return };
                let known = &mut self.forks.get_mut(&number).unwrap().1;
                if !std::mem::replace(&mut known.had_card, true) {
                    let syn = self.service.seat(flow, number, now);
                    assert!(
                        syn.is_none_or(|syn| syn.bytes()[47] & (FIN | SYN | RST | ACK) == SYN),
                        "the first is a SYN"
                    );
                }
            }
            Step::Gone(which) => {
                let Some((number, _)) = self.pick(which) else { return };
                self.lose(number);
            }
            Step::Pass(time) => self.now += time,
        }
    }

    fn lose(&mut self, number: u64) {
        let (flow, _) = self.forks.remove(&number).unwrap();
        self.service.leave(flow);
        self.service.gone(flow, self.now);
        self.gone += 1;
    }

    fn work(&mut self, can_make: bool) {
        match self.service.next(self.now) {
            Next::Make(flow) => {
                self.made += 1;
                assert!(self.forks.len() < FORKS.into(), "more than there may be");
                if can_make {
                    let before = self.forks.insert(flow.number(), (flow, Known::default()));
                    assert!(before.is_none(), "two forks of one flow");
                } else {
                    self.service.unmade(flow);
                    self.gone += 1;
                }
            }
            Next::End(flow) => {
                let known = &mut self.forks.get_mut(&flow.number()).expect("one that is there").1;
                assert!(!std::mem::replace(&mut known.was_ended, true), "it was ended before");
            }
            Next::Wait(_) => {}
        }
    }

    fn check(&self) {
        let forks = self.service.forks();
        assert_eq!((forks.made, forks.gone), (self.made, self.gone));
        assert_eq!(self.service.alive(), self.forks.len());
        assert!(forks.asked <= (FORKS + WAITING).into());
    }
}

proptest! {
    #[test]
    fn each_fork_is_made_once_ended_once_and_gone_once(steps in prop::collection::vec(any_step(), 0..300)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        world.service.close(world.now);
        while let Some((number, _)) = world.pick(0) {
            for _ in 0..=FORKS {
                world.work(true);
            }
            prop_assert!(world.forks.values().all(|(_, known)| known.was_ended), "all are told");
            world.lose(number);
            world.check();
        }
        prop_assert!(world.service.is_over());
        prop_assert_eq!(world.made, world.gone);
        let counts = world.service.counts();
        prop_assert_eq!(counts.asked, counts.ended.total());
    }
}
