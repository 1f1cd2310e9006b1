//! The last acknowledgement, with which the dispatcher answers a FIN that comes again; and for how long it does.

use crate::steps::{delivers, dispatcher, open, sends, syn};
use crate::wire::{TIMERS, Tcp, client, config, fork};
use mayfly_dispatch::{Dispatcher, Dropped, End, Flow, Port, Uplink};

/// Both have sent a FIN, and the client has acknowledged the fork's. The number after it is 902, and the client's 102.
fn closing(dispatcher: &mut Dispatcher) -> Flow {
    let flow = open(dispatcher);
    sends(dispatcher, flow, &fork(0).seq(901).ack(101).fin());
    delivers(dispatcher, flow, &fin());
    flow
}

fn fin() -> Tcp {
    client(0).seq(101).ack(902).fin()
}

fn last() -> Tcp {
    fork(0).seq(902).ack(102)
}

fn ends(dispatcher: &mut Dispatcher, flow: Flow, frame: &[u8]) {
    assert_eq!(dispatcher.from_fork(flow, frame, 0), Port::SendLast);
    assert_eq!(dispatcher.counts().ended.of(End::Closed), 1);
}

#[test]
fn its_checksums_are_right_whatever_the_forks_were() {
    for at in [24, 50] {
        let mut dispatcher = dispatcher();
        let flow = closing(&mut dispatcher);
        let mut unfinished = last().bytes();
        unfinished[at..at + 2].copy_from_slice(&[0x12, 0x34]);
        ends(&mut dispatcher, flow, &unfinished);
        assert_eq!(dispatcher.from_outside(&fin().bytes(), 1), Uplink::Answer(&last().bytes()));
    }
}

#[test]
fn it_is_without_data_and_flags_and_has_the_number_that_is_next() {
    let sack = vec![1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
    let with = |tcp: Tcp| Tcp { options: (vec![], sack.clone()), ..tcp };
    // On data; on data that is sent again, with its FIN; and with flags that say that all is urgent.
    for (carrier, flags) in [
        (fork(0).seq(902).ack(102), 0),
        (fork(0).seq(881).ack(102).data(20).fin(), 0x08),
        (fork(0).seq(901).ack(102).fin(), 0),
        (fork(0).seq(881).ack(102).data(20), 0xe8),
    ] {
        let mut dispatcher = dispatcher();
        let flow = closing(&mut dispatcher);
        let mut carrier = with(carrier).bytes();
        carrier[47] |= flags;
        carrier[53] = flags;
        ends(&mut dispatcher, flow, &carrier);
        let answer = with(last()).bytes();
        assert_eq!(dispatcher.from_outside(&fin().bytes(), 1), Uplink::Answer(&answer));
    }
}

#[test]
fn it_is_there_if_the_frame_that_carried_it_was_lost_with_its_data() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    let data = fork(0).seq(901).data(20).fin();
    sends(&mut dispatcher, flow, &data.clone().ack(101));
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).fin());
    // This one is lost; but the first arrives.
    sends(&mut dispatcher, flow, &data.ack(102));
    let ack = client(0).seq(102).ack(922).bytes();
    assert_eq!(dispatcher.from_outside(&ack, 0), Uplink::DeliverLast(flow));
    let again = client(0).seq(101).ack(922).fin().bytes();
    let answer = fork(0).seq(922).ack(102).bytes();
    assert_eq!(dispatcher.from_outside(&again, 1), Uplink::Answer(&answer));
}

#[test]
fn it_is_the_latest_and_nothing_that_acknowledges_less() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    delivers(&mut dispatcher, flow, &client(0).seq(101).ack(901).fin());
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(102));
    let window = |frame: Vec<u8>| {
        // Another window than all others have: so this is the one.
        let mut frame = frame;
        frame[48] = 0x10;
        frame
    };
    let latest = window(fork(0).seq(901).ack(102).fin().bytes());
    assert_eq!(dispatcher.from_fork(flow, &latest, 0), Port::Send);
    for older in [fork(0).seq(900).syn().ack(101), fork(0).seq(901).ack(101), fork(0).seq(901)] {
        sends(&mut dispatcher, flow, &older);
    }
    let ack = client(0).seq(102).ack(902).bytes();
    assert_eq!(dispatcher.from_outside(&ack, 0), Uplink::DeliverLast(flow));
    match dispatcher.from_outside(&fin().bytes(), 0) {
        Uplink::Answer(answer) => {
            assert_eq!(answer[38..50], window(last().bytes())[38..50]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn its_time_is_up_in_time() {
    let mut dispatcher = dispatcher();
    let flow = open(&mut dispatcher);
    assert_eq!(dispatcher.expired(100), None);
    sends(&mut dispatcher, flow, &fork(0).seq(901).ack(101).fin());
    delivers(&mut dispatcher, flow, &fin());
    ends(&mut dispatcher, flow, &last().bytes());
    assert_eq!(dispatcher.next_deadline(), Some(100 + TIMERS.remembered));
}

#[test]
fn a_syn_for_which_there_is_no_room_takes_it_from_nobody() {
    let mut dispatcher = Dispatcher::try_new(config(1, 4)).unwrap();
    let flow = closing(&mut dispatcher);
    ends(&mut dispatcher, flow, &last().bytes());
    assert!(matches!(dispatcher.from_outside(&syn(1).bytes(), 0), Uplink::Fork(_)));
    let newer = client(0).seq(500).syn().bytes();
    assert_eq!(dispatcher.from_outside(&newer, 0), Uplink::Dropped(Dropped::Full));
    assert_eq!(dispatcher.from_outside(&fin().bytes(), 0), Uplink::Answer(&last().bytes()));
}

#[test]
fn a_syn_with_data_is_dropped_for_that_and_takes_it_from_nobody() {
    let mut dispatcher = dispatcher();
    let flow = closing(&mut dispatcher);
    ends(&mut dispatcher, flow, &last().bytes());
    let newer = client(0).seq(500).syn().data(1).bytes();
    assert_eq!(dispatcher.from_outside(&newer, 0), Uplink::Dropped(Dropped::Data));
    assert_eq!(dispatcher.from_outside(&fin().bytes(), 0), Uplink::Answer(&last().bytes()));
}

#[test]
fn at_the_end_of_all_time_nothing_ends_before_its_time() {
    let now = u64::MAX - 50;
    let mut dispatcher = dispatcher();
    assert_eq!(dispatcher.expired(now), None);
    let flow = closing(&mut dispatcher);
    assert_eq!(dispatcher.expired(now), None);
    ends(&mut dispatcher, flow, &last().bytes());
    assert_eq!(dispatcher.expired(now), None);
    assert_eq!(dispatcher.from_outside(&fin().bytes(), now), Uplink::Answer(&last().bytes()));
    assert!(matches!(dispatcher.from_outside(&syn(1).bytes(), now), Uplink::Fork(_)));
    assert_eq!(dispatcher.expired(now), None);
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut dispatcher = dispatcher();
    assert_eq!(dispatcher.expired(1_000), None);
    open(&mut dispatcher);
    assert_eq!(dispatcher.expired(1_100), None);
}
