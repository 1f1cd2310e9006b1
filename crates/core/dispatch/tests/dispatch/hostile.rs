//! Frames of random bytes, and right ones with bytes changed, cut off and put behind: nothing panics, nothing is lost from
//! the counts, and in the end all flows are over.

use mayfly_dispatch::{Dispatcher, End, Flow, Port, Uplink};
use proptest::prelude::*;

use crate::wire::{IP, ROUTER, TEMPLATE, arp, client, config, fork};

/// A frame that is nearly right, from a client or its fork.
fn any_frame() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let segment = (0..4_u8, any::<bool>(), 0..8_u8, 0..8_u32, 0..8_u32, 0..3_usize).prop_map(
        |(number, is_client, flags, seq, ack, data)| {
            let mut segment = if is_client { client(number) } else { fork(number) };
            (segment.syn, segment.fin, segment.rst) =
                (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            segment.ack = ack.checked_sub(1);
            (number, segment.seq(seq).data(data).bytes())
        },
    );
    let arp = (0..4_u8, any::<bool>(), 0..3_u8).prop_map(|(number, is_client, operation)| {
        let (from, to) = if is_client { (ROUTER, TEMPLATE) } else { (TEMPLATE, ROUTER) };
        (number, arp(operation, (from, to), (from, IP), (to, [10, 0, 2, 2])))
    });
    let bytes = (0..4_u8, prop::collection::vec(any::<u8>(), 0..100));
    prop_oneof![8 => segment, 1 => arp, 1 => bytes]
}

#[derive(Clone, Debug)]
enum Step {
    Outside(Vec<u8>),
    Fork(u8, Vec<u8>),
    Forked,
    Failed(u8),
    Time(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let frame = (
        any_frame(),
        prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        prop::option::weighted(0.1, any::<prop::sample::Index>()),
        prop::option::weighted(0.1, prop::collection::vec(any::<u8>(), 0..80)),
    )
        .prop_map(|((number, mut frame), change, cut, more)| {
            if let Some((at, byte)) = change.filter(|_| !frame.is_empty()) {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len() + 1));
            }
            frame.extend(more.unwrap_or_default());
            (number, frame)
        })
        .boxed();
    prop_oneof![
        4 => frame.clone().prop_map(|(_, frame)| Step::Outside(frame)),
        4 => frame.prop_map(|(number, frame)| Step::Fork(number, frame)),
        2 => Just(Step::Forked),
        1 => (0..4_u8).prop_map(Step::Failed),
        1 => prop_oneof![0..300_u64, Just(u64::MAX)].prop_map(Step::Time),
    ]
}

proptest! {
    #[test]
    fn whatever_comes_each_frame_is_counted_once_and_each_flow_ends_once(
        flows in 1..4_u16,
        remembered in 0..3_u16,
        steps in prop::collection::vec(any_step(), 0..80),
    ) {
        let mut dispatcher = Dispatcher::try_new(config(flows, remembered)).unwrap();
        let (mut now, mut outside, mut inside, mut ended) = (0_u64, 0, 0, 0);
        // Flows that were asked for, and those whose forks are there.
        let mut asked: Vec<Flow> = Vec::new();
        let mut forks: Vec<Flow> = Vec::new();
        let (mut made, mut destroyed) = (0, 0_u64);
        for step in steps {
            match step {
                Step::Outside(frame) => {
                    outside += 1;
                    match dispatcher.from_outside(&frame, now) {
                        Uplink::Fork(flow) => asked.push(flow),
                        Uplink::Deliver(flow) => prop_assert!(forks.contains(&flow)),
                        Uplink::DeliverLast(flow) => {
                            prop_assert!(forks.contains(&flow));
                            forks.retain(|fork| *fork != flow);
                            ended += 1;
                        }
                        Uplink::Cancelled(flow) => {
                            prop_assert!(asked.contains(&flow));
                            ended += 1;
                        }
                        Uplink::Answer(bytes) => prop_assert!(!bytes.is_empty()),
                        Uplink::Kept | Uplink::Dropped(_) => {}
                    }
                }
                Step::Fork(number, frame) if !forks.is_empty() => {
                    inside += 1;
                    let flow = forks[usize::from(number) % forks.len()];
                    match dispatcher.from_fork(flow, &frame, now) {
                        Port::SendLast => {
                            forks.retain(|fork| *fork != flow);
                            ended += 1;
                        }
                        Port::Send | Port::Answer(_) | Port::Dropped(_) => {}
                    }
                }
                Step::Forked => {
                    if let Some(flow) = asked.pop() {
                        made += 1;
                        match dispatcher.forked(flow) {
                            Some(syn) => {
                                prop_assert!((54..=mayfly_dispatch::KEPT_BYTES).contains(&syn.len()));
                                forks.push(flow);
                            }
                            None => destroyed += 1,
                        }
                    }
                }
                Step::Failed(number) if number == 3 && !asked.is_empty() => {
                    // It ends a flow unless that is over.
                    ended += u64::from(dispatcher.failed(asked.remove(0)));
                }
                Step::Failed(number) if !forks.is_empty() => {
                    let flow = forks.remove(usize::from(number) % forks.len());
                    prop_assert!(dispatcher.failed(flow));
                    ended += 1;
                }
                Step::Time(later) => {
                    now = now.saturating_add(later);
                    while let Some(flow) = dispatcher.expired(now) {
                        forks.retain(|fork| *fork != flow);
                        ended += 1;
                    }
                }
                Step::Fork(..) | Step::Failed(_) => {}
            }
            let counts = *dispatcher.counts();
            let of_outside = counts.asked + counts.repeated + counts.delivered + counts.answered;
            prop_assert_eq!(of_outside + counts.dropped.total(), outside);
            prop_assert_eq!(counts.sent + counts.told + counts.refused.total(), inside);
            prop_assert_eq!(counts.ended.total(), ended);
            // Each fork that is there, or in the making, has one place, needed or not.
            prop_assert!(dispatcher.live() <= flows);
            prop_assert_eq!(forks.len() + asked.len(), usize::from(dispatcher.live()));
            prop_assert_eq!(counts.forked + counts.in_vain, made);
            prop_assert_eq!(counts.in_vain, destroyed);
            prop_assert!(counts.asked >= ended);
        }
        while dispatcher.expired(u64::MAX).is_some() {}
        prop_assert_eq!(usize::from(dispatcher.live()), asked.len());
        for flow in asked {
            prop_assert_eq!(dispatcher.forked(flow), None);
        }
        prop_assert_eq!((dispatcher.live(), dispatcher.next_deadline()), (0, None));
        let counts = dispatcher.counts();
        let by_kind: u64 = End::ALL.iter().map(|end| counts.ended.of(*end)).sum();
        prop_assert_eq!(by_kind, counts.asked);
    }
}
