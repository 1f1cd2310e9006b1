//! Services: each connection gets a fork, which is made once and gone once, whatever happens in between.

mod model;
mod wire;

use mayfly_dispatch::Flow;
use mayfly_hypervisor::service::{End, Next, Outside, Phase, Sent, Service};
use wire::*;

const SECOND: u64 = 1_000_000_000;

fn service(forks: u16, waiting: u16) -> Service<u16> {
    Service::try_new(offer(forks, waiting).config(MAC), forks).unwrap()
}

fn make(service: &mut Service<u16>, now: u64) -> Flow {
    match service.next(now) {
        Next::Make(flow) => flow,
        other => panic!("{other:?} in the place of a fork"),
    }
}

/// The course of a connection, with its fork, from its SYN to the last frame of the fork.
fn answered(service: &mut Service<u16>, number: u16, now: u64) -> Flow {
    assert_eq!(service.from_outside(&client(number, 0, 0, SYN), now), Outside::Look);
    let flow = make(service, now + 1);
    assert_eq!(service.from_outside(&client(number, 0, 0, SYN), now + 1), Outside::Nothing);
    let syn = service.seat(flow, number, now + 3).unwrap();
    assert_eq!(syn.bytes(), client(number, 0, 0, SYN));
    assert_eq!(service.from_fork(flow, &fork(number, 0, 1, SYN | ACK), now + 6), Sent::Send);
    let last = [(1, 1, ACK), (1, 1, FIN | ACK)];
    for (said, heard, flags) in last {
        let given = service.from_outside(&client(number, said, heard, flags), now + 7);
        assert_eq!(given, Outside::Give(number));
    }
    assert_eq!(service.from_fork(flow, &fork(number, 1, 2, FIN | ACK), now + 8), Sent::Send);
    let last = service.from_outside(&client(number, 2, 2, ACK), now + 9);
    assert_eq!(last, Outside::GiveLast(Some(number), flow));
    service.over(flow, now + 10);
    flow
}

#[test]
fn a_connection_gets_a_fork_which_goes_when_both_sides_have_closed() {
    let mut service = service(2, 2);
    let flow = answered(&mut service, 7, 0);
    assert_eq!(service.next(11), Next::End(flow));
    assert!(matches!(service.next(11), Next::Wait(Some(_))), "it is ended once");
    assert_eq!(service.leave(flow), Some(7));
    assert_eq!(service.alive(), 1);
    service.gone(flow, 15);
    let forks = service.forks();
    assert_eq!((forks.made, forks.gone, forks.failed, service.alive()), (1, 1, 0, 0));
    assert_eq!(service.counts().ended.of(End::Closed), 1);
    let means: Vec<_> = service.times().means().unwrap().collect();
    let [made, seated, answers, over, gone] = Phase::ALL;
    assert_eq!(means, [(made, 1), (seated, 2), (answers, 3), (over, 4), (gone, 5)]);
}

#[test]
fn a_syn_waits_while_as_many_forks_are_there_as_may_be_and_the_next_is_dropped() {
    let mut service = service(1, 1);
    let first = answered(&mut service, 1, 0);
    assert_eq!(service.from_outside(&client(2, 0, 0, SYN), 20), Outside::Look);
    assert_eq!(service.next(20), Next::End(first));
    assert!(matches!(service.next(20), Next::Wait(_)), "the first is being destroyed");
    assert_eq!(service.from_outside(&client(3, 0, 0, SYN), 20), Outside::Look);
    assert_eq!(service.from_outside(&client(4, 0, 0, SYN), 20), Outside::Nothing);
    assert_eq!(service.counts().dropped.total(), 1);
    service.gone(first, 21);
    let second = make(&mut service, 22);
    assert_eq!(service.seat(second, 2, 23).unwrap().bytes(), client(2, 0, 0, SYN));
    assert!(matches!(service.next(23), Next::Wait(_)));
}

#[test]
fn a_fork_that_nobody_waits_for_any_more_is_given_nothing_and_ended() {
    // Its client has sent a RST, or its time is up, before it was begun, before it was there, and after.
    for is_reset in [true, false] {
        for stage in 0..3 {
            let mut service = service(2, 2);
            service.from_outside(&client(1, 0, 0, SYN), 0);
            let flow = (stage > 0).then(|| make(&mut service, 0));
            if stage == 2 {
                assert!(service.seat(flow.unwrap(), 1, 0).is_some());
            }
            let now = if is_reset { 0 } else { 3600 * SECOND };
            if is_reset {
                match service.from_outside(&client(1, 1, 0, RST), now) {
                    Outside::Look => {}
                    Outside::GiveLast(Some(1), flow) => service.over(flow, now),
                    other => panic!("{other:?}"),
                }
            }
            let Some(flow) = flow else {
                // It may be called again at once: one that is forgotten is one step.
                let next = [service.next(now), service.next(now)];
                assert!(matches!(next, [Next::Wait(_), Next::Wait(_)]), "none is made");
                assert_eq!(service.forks().made, 0);
                continue;
            };
            assert_eq!(service.next(now), Next::End(flow));
            if stage == 1 {
                assert_eq!(service.seat(flow, 1, now), None);
            }
            assert_eq!(service.from_fork(flow, &fork(1, 0, 1, SYN | ACK), now), Sent::Nothing);
            service.leave(flow);
            service.gone(flow, now);
            assert_eq!((service.forks().made, service.forks().gone, service.alive()), (1, 1, 0));
        }
    }
}

#[test]
fn syns_that_are_taken_back_have_no_more_forks_made_than_there_are_places() {
    let mut service = service(2, 1);
    let mut made = Vec::new();
    for seq in 0..50 {
        service.from_outside(&client(1, seq, 0, SYN), 0);
        if let Next::Make(flow) = service.next(0) {
            made.push(flow);
        }
        service.from_outside(&client(1, seq + 1, 0, RST), 0);
        while let Next::End(_) = service.next(0) {}
    }
    // The third place is free each time: its fork was never begun.
    assert_eq!((made.len(), service.alive(), service.forks().asked), (2, 2, 0));
    assert_eq!(service.counts().ended.of(End::Cancelled), 50);
    assert_eq!(service.seat(made[0], 1, 1), None);
    for flow in &made {
        service.gone(*flow, 2);
    }
    assert_eq!((service.forks().made, service.forks().gone), (2, 2));
    for number in 0..3 {
        assert_eq!(service.from_outside(&client(number, 0, 0, SYN), 3), Outside::Look);
    }
}

#[test]
fn a_fork_that_is_not_made_or_ends_by_itself_leaves_its_connection_to_be_begun_again() {
    let mut service = service(1, 0);
    service.from_outside(&client(1, 0, 0, SYN), 0);
    let flow = make(&mut service, 0);
    service.unmade(flow);
    assert_eq!(service.from_outside(&client(1, 0, 0, SYN), 1), Outside::Look);
    let flow = make(&mut service, 1);
    service.seat(flow, 1, 1).unwrap();
    service.leave(flow);
    service.gone(flow, 2);
    assert_eq!(service.from_outside(&client(1, 0, 0, SYN), 3), Outside::Look);
    let forks = service.forks();
    assert_eq!((forks.made, forks.gone, forks.failed, forks.asked), (2, 2, 1, 1));
    assert_eq!(service.counts().ended.of(End::Failed), 2);
}

#[test]
fn a_service_that_is_closed_ends_its_forks_and_makes_no_more() {
    let mut service = service(2, 2);
    let mut flows = Vec::new();
    for number in 0..4 {
        service.from_outside(&client(number, 0, 0, SYN), 0);
        if number < 2 {
            flows.push(make(&mut service, 0));
        }
    }
    service.seat(flows[0], 0, 0).unwrap();
    service.close(1);
    assert_eq!(service.forks().asked, 0, "what waits is forgotten");
    assert_eq!(service.from_outside(&client(9, 0, 0, SYN), 1), Outside::Nothing);
    for flow in flows {
        assert!(!service.is_over());
        assert_eq!(service.next(1), Next::End(flow));
        service.gone(flow, 2);
    }
    assert!(service.is_over());
    assert!(matches!(service.next(3), Next::Wait(_)));
}
