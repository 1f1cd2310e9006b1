//! Forks in the making: a flow that ends meanwhile has its place until its fork is there, or will never be.

use crate::steps::syn;
use crate::wire::{TIMERS, client, config, fork};
use mayfly_dispatch::{Dispatcher, Dropped, End, Flow, Port, Uplink};

/// How many forks are asked for by SYNs that `end` ends each, of a dispatcher of so many flows.
fn asked(flows: u16, end: impl Fn(&mut Dispatcher, u32)) -> (Dispatcher, Vec<Flow>) {
    let mut dispatcher = Dispatcher::try_new(config(flows, 2)).unwrap();
    let mut asked = Vec::new();
    for seq in 0..100 {
        let now = u64::from(seq) * TIMERS.half_open;
        let syn = client(0).seq(seq).syn().bytes();
        if let Uplink::Fork(flow) = dispatcher.from_outside(&syn, now) {
            asked.push(flow);
        }
        end(&mut dispatcher, seq);
    }
    (dispatcher, asked)
}

/// By a client that may not be there: it receives nothing.
fn rst(dispatcher: &mut Dispatcher, seq: u32) {
    let rst = client(0).seq(seq + 1).rst().bytes();
    dispatcher.from_outside(&rst, u64::from(seq) * TIMERS.half_open);
}

fn late(dispatcher: &mut Dispatcher, seq: u32) {
    while dispatcher.expired(u64::from(seq + 1) * TIMERS.half_open).is_some() {}
}

#[test]
fn flows_that_end_while_their_forks_are_made_have_no_more_made_than_there_may_be() {
    for flows in 1..4 {
        for (end, how) in [
            (rst as fn(&mut Dispatcher, u32), End::Cancelled),
            (late as fn(&mut Dispatcher, u32), End::HalfOpen),
        ] {
            let (mut dispatcher, asked) = asked(flows, end);
            let count = u64::from(flows);
            assert_eq!((asked.len() as u64, dispatcher.live()), (count, flows));
            assert_eq!(dispatcher.counts().ended.of(how), count);
            assert_eq!(dispatcher.counts().dropped.of(Dropped::Full), 100 - count);
            assert_eq!(dispatcher.expired(u64::MAX - 1), None);
            assert_eq!(dispatcher.next_deadline(), None, "nothing is left to end");
            for flow in asked {
                assert_eq!(dispatcher.forked(flow), None);
                assert_eq!(dispatcher.forked(flow), None);
            }
            let counts = dispatcher.counts();
            assert_eq!((counts.forked, counts.in_vain, dispatcher.live()), (0, count, 0));
            let again = dispatcher.from_outside(&syn(0).bytes(), 0);
            assert!(matches!(again, Uplink::Fork(_)), "{again:?}");
        }
    }
}

#[test]
fn a_client_whose_fork_is_made_in_vain_gets_another() {
    let (mut dispatcher, asked) = asked(2, rst);
    let [first, second] = asked[..] else { panic!() };
    // It has ended, and ends no second time; but its place is free.
    assert!(!dispatcher.failed(first));
    assert_eq!((dispatcher.live(), dispatcher.counts().ended.of(End::Failed)), (1, 0));
    let Uplink::Fork(third) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    // What becomes of the second is nothing to the third, which is of the same client.
    let answer = fork(0).seq(900).syn().ack(101).bytes();
    let gone = Port::Dropped(Dropped::Unknown);
    assert_eq!(dispatcher.from_fork(second, &answer, 0), gone);
    assert_eq!(dispatcher.forked(second), None);
    assert_eq!(dispatcher.forked(third), Some(&syn(0).bytes()[..]));
    assert_eq!(dispatcher.from_fork(third, &answer, 0), Port::Send);
    assert_eq!((dispatcher.live(), dispatcher.counts().in_vain), (1, 1));
}

#[test]
fn the_end_of_all_time_ends_no_flow_twice() {
    let (mut dispatcher, asked) = asked(1, rst);
    assert_eq!(dispatcher.expired(u64::MAX), None);
    assert_eq!(dispatcher.counts().ended.total(), 1);
    assert_eq!(dispatcher.forked(asked[0]), None);
}
