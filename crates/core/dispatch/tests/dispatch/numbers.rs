//! What numbers say: which RST ends a flow, which acknowledgement counts, and which FIN is the client's.

use crate::steps::{delivers, dispatcher, open, opening, sends};
use crate::wire::{Tcp, client, fork};
use mayfly_dispatch::{Dispatcher, End, Flow, Port, Uplink};

/// The client's RST with this number ends the flow, or not.
fn resets(dispatcher: &mut Dispatcher, seq: u32) -> bool {
    let rst = client(0).seq(seq).rst().bytes();
    match dispatcher.from_outside(&rst, 0) {
        Uplink::Deliver(_) => false,
        Uplink::DeliverLast(_) => true,
        other => panic!("{other:?}"),
    }
}

/// So does the fork's.
fn refuses(dispatcher: &mut Dispatcher, flow: Flow, rst: &Tcp) -> bool {
    match dispatcher.from_fork(flow, &rst.bytes(), 0) {
        Port::Send => false,
        Port::SendLast => true,
        other => panic!("{other:?}"),
    }
}

/// Whether what the client says at 900 keeps the flow from being abandoned at 1,000.
fn is_heard(dispatcher: &mut Dispatcher, flow: Flow, said: &Tcp) -> bool {
    assert_eq!(dispatcher.from_outside(&said.bytes(), 900), Uplink::Deliver(flow));
    dispatcher.expired(1_000).is_none()
}

#[test]
fn what_a_fork_answers_to_a_guess_ends_nothing() {
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    // Before the fork has said anything.
    delivers(&mut dispatcher, flow, &client(0).seq(77).ack(12));
    assert!(!refuses(&mut dispatcher, flow, &fork(0).seq(12).rst()));
    sends(&mut dispatcher, flow, &fork(0).seq(900).syn().ack(101));
    for guess in [0x1234_5678, 900, 902] {
        delivers(&mut dispatcher, flow, &client(0).seq(77).ack(guess));
        assert!(!refuses(&mut dispatcher, flow, &fork(0).seq(guess).rst()), "{guess}");
    }
    assert_eq!(dispatcher.counts().ended.total(), 0);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).data(10));
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(111).data(5));
}

#[test]
fn a_rst_of_the_fork_ends_its_flow_if_it_acknowledges_or_is_of_what_was_sent() {
    let sent = fork(0).seq(901).ack(101).data(20);
    for (rst, ends) in [
        (fork(0).seq(900).rst(), false),
        (fork(0).seq(901).rst(), false),
        (fork(0).seq(910).rst(), false),
        (fork(0).seq(911).rst(), true),
        (fork(0).seq(921).rst(), true),
        (fork(0).seq(922).rst(), false),
        (fork(0).seq(5).ack(101).rst(), true),
    ] {
        let mut dispatcher = dispatcher();
        let flow = open(&mut dispatcher);
        sends(&mut dispatcher, flow, &sent);
        delivers(&mut dispatcher, flow, &client(0).seq(101).ack(911));
        assert_eq!(refuses(&mut dispatcher, flow, &rst), ends, "{rst:?}");
        assert_eq!(dispatcher.counts().ended.of(End::Refused), u64::from(ends));
    }
}

#[test]
fn behind_a_gap_no_rst_ends_a_flow_until_the_fork_has_acknowledged_what_is_behind_it() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(111).ack(901).data(10));
    assert!(!resets(&mut dispatcher, 121));
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).data(10));
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(121));
    // The fork has what is before 121, and drops what has a number before that.
    assert!(!resets(&mut dispatcher, 111));
    delivers(&mut dispatcher, flow, &client(0).seq(121).ack(901).data(10));
    assert!(resets(&mut dispatcher, 131));
}

#[test]
fn a_rst_with_the_number_that_the_fork_has_acknowledged_last_ends_the_flow() {
    // It may have lost what came after it.
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).data(10));
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101));
    assert!(resets(&mut dispatcher, 101));
    // It has acknowledged more since, and an older frame of it has come again.
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).data(10));
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(111));
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).data(3));
    assert!(!resets(&mut dispatcher, 101));
}

#[test]
fn the_fork_says_which_syn_it_has_taken() {
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(5_000).syn());
    sends(&mut dispatcher, flow, &fork(0).seq(900).syn().ack(5_001));
    delivers(&mut dispatcher, flow, &client(0).seq(5_001).ack(901).data(10));
    assert!(resets(&mut dispatcher, 5_011));
    // And of two it may have taken the one before.
    let flow = opening(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(50).syn());
    sends(&mut dispatcher, flow, &fork(0).seq(900).syn().ack(51));
    delivers(&mut dispatcher, flow, &client(0).seq(51).ack(901).data(10));
    assert!(resets(&mut dispatcher, 61));
}

#[test]
fn what_the_fork_has_sent_stays_sent_whatever_it_sends_again() {
    for again in [fork(0).seq(900).syn().ack(101), fork(0).seq(901).ack(101).data(5)] {
        let mut dispatcher = dispatcher();
        let flow = open(&mut dispatcher);
        sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).data(20));
        sends(&mut dispatcher, flow, &again);
        assert!(is_heard(&mut dispatcher, flow, &client(0).seq(101).ack(921)), "{again:?}");
    }
}

#[test]
fn an_acknowledgement_of_less_than_before_and_that_of_a_syn_keep_no_flow_from_being_abandoned() {
    let old = client(0).seq(101).ack(905);
    let syn = client(0).seq(101).ack(921).syn();
    let new = client(0).seq(101).ack(921);
    for (said, is_new) in [(old, false), (syn, false), (new, true)] {
        let mut dispatcher = dispatcher();
        let flow = open(&mut dispatcher);
        sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).data(20));
        delivers(&mut dispatcher, flow, &client(0).seq(101).ack(921));
        assert_eq!(is_heard(&mut dispatcher, flow, &said), is_new, "{said:?}");
    }
}

/// Both have sent a FIN. The client has acknowledged the fork's.
fn closing(dispatcher: &mut Dispatcher) -> Flow {
    let flow = open(dispatcher);
    sends(dispatcher, flow, &fork(0).seq(901).ack(101).fin());
    delivers(dispatcher, flow, &client(0).seq(101).ack(902).fin());
    flow
}

fn is_last(dispatcher: &mut Dispatcher, flow: Flow, segment: &Tcp) -> bool {
    dispatcher.from_fork(flow, &segment.bytes(), 0) == Port::SendLast
}

#[test]
fn a_fin_that_is_a_guess_takes_the_place_of_no_other() {
    let mut dispatcher = dispatcher();
    let flow = closing(&mut dispatcher);
    for quarter in 0..4_u32 {
        let guess = client(0).seq(0xdead_beef).ack((quarter << 30) + 7).fin();
        delivers(&mut dispatcher, flow, &guess);
    }
    assert!(is_last(&mut dispatcher, flow, &fork(0).seq(902).ack(102)));
}

#[test]
fn the_fin_that_is_in_order_takes_the_place_of_a_guess() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).fin());
    delivers(&mut dispatcher, flow, &client(0).seq(9_000).ack(901).fin());
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(902).data(10).fin());
    assert!(is_last(&mut dispatcher, flow, &fork(0).seq(902).ack(112)));
}

#[test]
fn a_fin_that_acknowledges_what_is_out_of_any_window_is_none() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).fin());
    let far = 902_u32.wrapping_sub(3 << 29);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(far).fin());
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(902).data(1));
    // It is the byte's.
    assert!(!is_last(&mut dispatcher, flow, &fork(0).seq(902).ack(102)));
}

#[test]
fn a_fin_with_an_older_acknowledgement_is_one() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).fin());
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(902));
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).fin());
    assert!(is_last(&mut dispatcher, flow, &fork(0).seq(902).ack(102)));
}

#[test]
fn a_fin_that_is_acknowledged_stays_so() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).fin());
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(102));
    for seq in [5_000, 102] {
        delivers(&mut dispatcher, flow, &client(0).seq(seq).ack(901).fin());
    }
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(102).data(5).fin());
    let last = client(0).seq(102).ack(907).bytes();
    assert_eq!(dispatcher.from_outside(&last, 0), Uplink::DeliverLast(flow));
}
