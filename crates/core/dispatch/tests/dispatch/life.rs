//! The life of a flow, step by step.

use crate::steps::{delivers, dispatcher, open, opening, sends, syn};
use crate::wire::{TIMERS, Tcp, client, config, fork};
use mayfly_dispatch::{Dispatcher, Dropped, End, NoDispatcher, Port, Timers, Uplink};

/// The fork has closed first, and is over: its last acknowledgement is returned.
fn closed(dispatcher: &mut Dispatcher) -> Vec<u8> {
    let flow = open(dispatcher);
    delivers(dispatcher, flow, &client(0).seq(101).ack(901).data(10));
    sends(dispatcher, flow, &fork(0).seq(901).ack(111).data(20).fin());
    delivers(dispatcher, flow, &client(0).seq(111).ack(922).fin());
    let last = fork(0).seq(922).ack(112).bytes();
    assert_eq!(dispatcher.from_fork(flow, &last, 0), Port::SendLast);
    assert_eq!(dispatcher.live(), 0);
    assert_eq!(dispatcher.counts().ended.of(End::Closed), 1);
    // Nothing of the fork is believed any more.
    assert_eq!(dispatcher.from_fork(flow, &last, 0), Port::Dropped(Dropped::Unknown));
    assert!(!dispatcher.failed(flow));
    last
}

#[test]
fn a_syn_asks_for_one_fork_however_often_it_comes() {
    let mut dispatcher = dispatcher();
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    for now in 1..4 {
        assert_eq!(dispatcher.from_outside(&syn(0).bytes(), now), Uplink::Kept);
    }
    assert_eq!(dispatcher.forked(flow), Some(&syn(0).bytes()[..]));
    assert_eq!(dispatcher.forked(flow), None, "there is one SYN for one fork");
    // Its fork answers it again.
    assert_eq!(dispatcher.from_outside(&syn(0).bytes(), 5), Uplink::Deliver(flow));
    let counts = dispatcher.counts();
    assert_eq!((counts.asked, counts.repeated, counts.forked), (1, 3, 1));
}

#[test]
fn a_newer_syn_takes_the_place_of_one_that_no_fork_has_seen() {
    let mut dispatcher = dispatcher();
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    let newer = Tcp { from: [2, 0, 0, 0, 0, 8], ..syn(0) }.seq(7);
    assert_eq!(dispatcher.from_outside(&newer.bytes(), 0), Uplink::Kept);
    assert_eq!(dispatcher.forked(flow), Some(&newer.bytes()[..]));
    // Answers go where the newer one came from.
    let answer = fork(0).seq(900).syn().ack(8);
    assert_eq!(dispatcher.from_fork(flow, &answer.bytes(), 0), Port::Dropped(Dropped::Foreign));
    sends(&mut dispatcher, flow, &Tcp { to: newer.from, ..answer });
}

#[test]
fn what_a_frame_is_filled_up_with_is_not_kept_and_all_options_are() {
    let mut dispatcher = dispatcher();
    let mut filled = syn(0).bytes();
    filled.resize(1_514, 0xaa);
    let Uplink::Fork(flow) = dispatcher.from_outside(&filled, 0) else { panic!() };
    assert_eq!(dispatcher.forked(flow), Some(&syn(0).bytes()[..]));
    let full = Tcp { options: (vec![1; 40], vec![1; 40]), ..syn(1) }.bytes();
    assert_eq!(full.len(), mayfly_dispatch::KEPT_BYTES);
    let Uplink::Fork(flow) = dispatcher.from_outside(&full, 0) else { panic!() };
    assert_eq!(dispatcher.forked(flow), Some(&full[..]));
}

#[test]
fn a_flow_is_over_when_its_last_acknowledgement_goes_to_its_fork() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).data(10).fin());
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(112).data(20).fin());
    // Of the data alone: it is not over.
    delivers(&mut dispatcher, flow, &client(0).seq(112).ack(921));
    let last = client(0).seq(112).ack(922).bytes();
    assert_eq!(dispatcher.from_outside(&last, 0), Uplink::DeliverLast(flow));
    assert_eq!(dispatcher.live(), 0);
}

#[test]
fn a_flow_is_over_when_its_last_acknowledgement_goes_to_its_client_and_that_is_sent_again() {
    let mut dispatcher = dispatcher();
    let last = closed(&mut dispatcher);
    // It was lost: the client sends its FIN again, and nobody makes a fork for it.
    let fin = client(0).seq(111).ack(922).fin().bytes();
    for _ in 0..2 {
        assert_eq!(dispatcher.from_outside(&fin, 1), Uplink::Answer(&last));
    }
    // No answer to what is no FIN, or another's, and nothing that ends the memory of it.
    for other in [
        client(0).seq(112).ack(922),
        client(0).seq(110).ack(922).fin(),
        client(0).seq(112).rst(),
        client(0).seq(112).ack(922).data(4),
        client(0).seq(110).ack(922).syn().fin(),
        client(0).seq(111).ack(922).fin().rst(),
    ] {
        let action = dispatcher.from_outside(&other.bytes(), 1);
        assert_eq!(action, Uplink::Dropped(Dropped::Late), "{other:?}");
    }
    assert_eq!(dispatcher.from_outside(&fin, 1), Uplink::Answer(&last));
    assert_eq!(dispatcher.expired(TIMERS.remembered), None);
    assert_eq!(dispatcher.from_outside(&fin, 300), Uplink::Dropped(Dropped::Unknown));
}

#[test]
fn a_syn_of_a_flow_that_is_remembered_wins_if_its_number_is_beyond() {
    for (seq, wins) in [(100, false), (111, false), (112, true), (1 << 30, true), (1 << 31, true)] {
        let mut dispatcher = dispatcher();
        closed(&mut dispatcher);
        let action = dispatcher.from_outside(&client(0).seq(seq).syn().bytes(), 1);
        match action {
            Uplink::Fork(_) => assert!(wins, "{seq}"),
            Uplink::Dropped(Dropped::Late) => assert!(!wins, "{seq}"),
            other => panic!("{seq}: {other:?}"),
        }
        assert_eq!(dispatcher.live(), u16::from(wins));
    }
    // Half of all numbers further on, and one: that is before.
    let mut dispatcher = dispatcher();
    closed(&mut dispatcher);
    let before = client(0).seq(112 + (1 << 31)).syn().bytes();
    assert_eq!(dispatcher.from_outside(&before, 1), Uplink::Dropped(Dropped::Late));
}

#[test]
fn a_new_syn_of_a_flow_with_a_fork_goes_to_that_fork() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(5_000).syn());
    // It says what it expects (RFC 9293, section 3.10.7.4), the client has no such connection, and begins again.
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101));
    let rst = client(0).seq(101).rst().bytes();
    assert_eq!(dispatcher.from_outside(&rst, 0), Uplink::DeliverLast(flow));
    let again = dispatcher.from_outside(&client(0).seq(5_000).syn().bytes(), 0);
    assert!(matches!(again, Uplink::Fork(new) if new != flow), "{again:?}");
}

#[test]
fn a_rst_with_another_number_than_the_next_ends_nothing() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).data(10));
    for seq in [100, 102, 110, 112, 0, 1 << 31] {
        delivers(&mut dispatcher, flow, &client(0).seq(seq).rst());
    }
    let counts = *dispatcher.counts();
    assert_eq!(counts.ended.total(), 0);
    // The fork has acknowledged up to 101, and has been sent up to 111.
    let rst = client(0).seq(111).rst().bytes();
    assert_eq!(dispatcher.from_outside(&rst, 0), Uplink::DeliverLast(flow));
    assert_eq!(dispatcher.counts().ended.of(End::Reset), 1);
    assert_eq!(dispatcher.from_outside(&rst, 0), Uplink::Dropped(Dropped::Unknown));
}

#[test]
fn a_rst_of_the_fork_ends_its_flow() {
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    let rst = fork(0).ack(101).rst().bytes();
    assert_eq!(dispatcher.from_fork(flow, &rst, 0), Port::SendLast);
    assert_eq!(dispatcher.counts().ended.of(End::Refused), 1);
    assert_eq!(dispatcher.live(), 0);
}

#[test]
fn a_rst_before_the_fork_is_there_cancels_it() {
    let mut dispatcher = dispatcher();
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    let wrong = client(0).seq(100).rst().bytes();
    assert_eq!(dispatcher.from_outside(&wrong, 0), Uplink::Dropped(Dropped::Early));
    let rst = client(0).seq(101).rst().bytes();
    assert_eq!(dispatcher.from_outside(&rst, 0), Uplink::Cancelled(flow));
    assert_eq!(dispatcher.forked(flow), None);
    assert_eq!(dispatcher.counts().ended.of(End::Cancelled), 1);
}

#[test]
fn a_flow_that_stays_half_open_ends_and_repeated_syns_do_not_prolong_it() {
    let mut dispatcher = dispatcher();
    let Uplink::Fork(waiting) = dispatcher.from_outside(&syn(1).bytes(), 0) else { panic!() };
    let flow = opening(&mut dispatcher);
    sends(&mut dispatcher, flow, &fork(0).seq(900).syn().ack(101));
    // Neither what comes again, nor what acknowledges what was never sent, completes the handshake.
    for segment in [syn(0), client(0).seq(101).ack(902), client(0).seq(101).ack(900)] {
        assert_eq!(dispatcher.from_outside(&segment.bytes(), 90), Uplink::Deliver(flow));
    }
    assert_eq!(dispatcher.from_outside(&syn(1).bytes(), 90), Uplink::Kept);
    assert_eq!(dispatcher.next_deadline(), Some(100));
    assert_eq!(dispatcher.expired(99), None);
    let mut over = [dispatcher.expired(100), dispatcher.expired(100)];
    over.sort();
    assert_eq!(over, [Some(waiting), Some(flow)]);
    assert_eq!(dispatcher.expired(100), None);
    assert_eq!(dispatcher.counts().ended.of(End::HalfOpen), 2);
    assert_eq!(dispatcher.live(), 1, "the other's fork is being made");
    assert_eq!(dispatcher.forked(waiting), None);
    assert_eq!((dispatcher.live(), dispatcher.next_deadline()), (0, None));
}

#[test]
fn a_flow_that_its_client_has_abandoned_ends_whatever_its_fork_sends() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    for now in [500, 900] {
        let data = fork(0).seq(901).ack(101).data(5).bytes();
        assert_eq!(dispatcher.from_fork(flow, &data, now), Port::Send);
        // Of something that the fork has never sent.
        let guess = client(0).seq(101).ack(2_000).bytes();
        assert_eq!(dispatcher.from_outside(&guess, now), Uplink::Deliver(flow));
    }
    assert_eq!(dispatcher.expired(999), None);
    assert_eq!(dispatcher.expired(1_000), Some(flow));
    assert_eq!(dispatcher.counts().ended.of(End::Abandoned), 1);
}

#[test]
fn no_flow_lasts_longer_than_a_flow_may_be_it_half_open() {
    let timers = Timers { longest: 50, ..TIMERS };
    let config = mayfly_dispatch::Config { timers, ..config(2, 0) };
    let mut dispatcher = Dispatcher::try_new(config).unwrap();
    let Uplink::Fork(waiting) = dispatcher.from_outside(&syn(1).bytes(), 0) else { panic!() };
    let flow = opening(&mut dispatcher);
    assert_eq!(dispatcher.expired(49), None);
    let mut over = [dispatcher.expired(50), dispatcher.expired(50)];
    over.sort();
    assert_eq!(over, [Some(waiting), Some(flow)]);
}

#[test]
fn a_flow_that_opens_may_end_sooner_than_if_it_had_stayed_half_open() {
    let timers = Timers { abandoned: 10, ..TIMERS };
    let config = mayfly_dispatch::Config { timers, ..config(1, 0) };
    let mut dispatcher = Dispatcher::try_new(config).unwrap();
    let flow = open(&mut dispatcher);
    assert_eq!(dispatcher.next_deadline(), Some(10));
    assert_eq!(dispatcher.expired(9), None);
    assert_eq!(dispatcher.expired(10), Some(flow));
}

#[test]
fn a_flow_ends_at_last_however_busy_it_is() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    for now in (0..5_000).step_by(500) {
        let alive = client(0).seq(101).ack(901).data(1).bytes();
        assert_eq!(dispatcher.from_outside(&alive, now), Uplink::Deliver(flow));
        assert_eq!(dispatcher.expired(now), None);
    }
    assert_eq!(dispatcher.expired(4_999), None);
    assert_eq!(dispatcher.expired(5_000), Some(flow));
    assert_eq!(dispatcher.counts().ended.of(End::TooLong), 1);
}

#[test]
fn a_flow_that_is_over_is_not_taken_for_the_one_in_its_place() {
    let mut dispatcher = Dispatcher::try_new(config(1, 0)).unwrap();
    let Uplink::Fork(old) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    assert!(dispatcher.failed(old));
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    assert_ne!(old.number(), flow.number());
    assert_eq!(dispatcher.forked(old), None);
    assert!(!dispatcher.failed(old));
    assert!(dispatcher.forked(flow).is_some());
    let answer = fork(0).seq(900).syn().ack(101);
    let gone = Port::Dropped(Dropped::Unknown);
    assert_eq!(dispatcher.from_fork(old, &answer.bytes(), 0), gone);
    sends(&mut dispatcher, flow, &answer);
}

#[test]
fn at_the_bound_a_syn_is_dropped_and_gets_its_fork_when_it_comes_again() {
    let mut dispatcher = dispatcher();
    let mut flows = Vec::new();
    for number in 0..4 {
        let Uplink::Fork(flow) = dispatcher.from_outside(&syn(number).bytes(), 0) else { panic!() };
        flows.push(flow);
    }
    for _ in 0..3 {
        assert_eq!(dispatcher.from_outside(&syn(4).bytes(), 0), Uplink::Dropped(Dropped::Full));
    }
    assert_eq!(dispatcher.counts().dropped.of(Dropped::Full), 3);
    assert!(dispatcher.failed(flows[2]));
    assert!(!dispatcher.failed(flows[2]), "it has failed once");
    assert!(matches!(dispatcher.from_outside(&syn(4).bytes(), 0), Uplink::Fork(_)));
    assert_eq!(dispatcher.live(), 4);
}

#[test]
fn more_flows_than_can_be_remembered_are_forgotten_in_their_order() {
    let mut dispatcher = Dispatcher::try_new(config(2, 1)).unwrap();
    let mut fins = Vec::new();
    for number in 0..4_u8 {
        let now = u64::from(number);
        let Uplink::Fork(flow) = dispatcher.from_outside(&syn(number).bytes(), now) else {
            panic!()
        };
        dispatcher.forked(flow);
        let ack = client(number).seq(101).ack(901);
        let fin = client(number).seq(101).ack(902).fin();
        for (is_client, segment) in [
            (false, fork(number).seq(900).syn().ack(101)),
            (true, ack),
            (false, fork(number).seq(901).ack(101).fin()),
            (true, fin.clone()),
            (false, fork(number).seq(902).ack(102)),
        ] {
            if is_client {
                dispatcher.from_outside(&segment.bytes(), now);
            } else {
                dispatcher.from_fork(flow, &segment.bytes(), now);
            }
        }
        fins.push(fin.bytes());
    }
    assert_eq!(dispatcher.counts().ended.of(End::Closed), 4);
    let answered = |fin: &Vec<u8>| matches!(dispatcher.from_outside(fin, 4), Uplink::Answer(_));
    let answered: Vec<_> = fins.iter().map(answered).collect();
    assert_eq!(answered, [false, true, true, true], "there are three slots");
}

#[test]
fn a_dispatcher_is_refused_that_could_have_no_flow_or_has_no_address() {
    let refused = |config| Dispatcher::try_new(config).err();
    let right = config(4, 4);
    for wrong in [[0; 6], [1, 0, 0, 0, 0, 1], [0xff; 6]] {
        let config = mayfly_dispatch::Config { mac: wrong, ..right };
        assert_eq!(refused(config), Some(NoDispatcher::Address));
    }
    for wrong in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        let config = mayfly_dispatch::Config { ip: wrong, ..right };
        assert_eq!(refused(config), Some(NoDispatcher::Address));
    }
    let without_port = mayfly_dispatch::Config { port: 0, ..right };
    assert_eq!(refused(without_port), Some(NoDispatcher::Port));
    for (flows, remembered) in [(0, 4), (1_024, 1), (1, u16::MAX), (u16::MAX, 1)] {
        assert_eq!(refused(config(flows, remembered)), Some(NoDispatcher::Flows));
    }
    assert_eq!(refused(config(1_024, 0)), None);
}

#[test]
fn a_dispatcher_that_remembers_nothing_forgets_at_once() {
    let mut dispatcher = Dispatcher::try_new(config(4, 0)).unwrap();
    closed(&mut dispatcher);
    let fin = client(0).seq(111).ack(922).fin().bytes();
    assert_eq!(dispatcher.from_outside(&fin, 1), Uplink::Dropped(Dropped::Unknown));
    assert_eq!(dispatcher.expired(u64::MAX), None);
}

#[test]
fn numbers_that_go_round_are_compared_as_such() {
    let mut dispatcher = dispatcher();
    let bytes = client(0).seq(u32::MAX).syn().bytes();
    let Uplink::Fork(flow) = dispatcher.from_outside(&bytes, 0) else { panic!() };
    dispatcher.forked(flow);
    let first = u32::MAX - 2;
    sends(&mut dispatcher, flow, &fork(0).seq(first - 1).syn().ack(0));
    delivers(&mut dispatcher, flow, &client(0).seq(0).ack(first).data(4));
    // Ten bytes and a FIN: 7 is the number after the bytes.
    sends(&mut dispatcher, flow, &fork(0).seq(first).ack(4).data(10).fin());
    delivers(&mut dispatcher, flow, &client(0).seq(4).ack(7).fin());
    sends(&mut dispatcher, flow, &fork(0).seq(8).ack(5));
    delivers(&mut dispatcher, flow, &client(0).seq(5).ack(7));
    let last = client(0).seq(5).ack(8).bytes();
    assert_eq!(dispatcher.from_outside(&last, 0), Uplink::DeliverLast(flow));
    assert_eq!(dispatcher.counts().ended.of(End::Closed), 1);
}
