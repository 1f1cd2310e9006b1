//! What is dropped: frames that are not what they say, are not for the template, or are not what a fork may send.

use crate::wire::{IP, PORT, ROUTER, TEMPLATE, Tcp, arp, client, config, fork};
use mayfly_dispatch::{Dispatcher, Dropped, Flow, Port, Uplink};

const ALL: [u8; 6] = [0xff; 6];

fn dispatcher() -> Dispatcher {
    Dispatcher::try_new(config(4, 4)).unwrap()
}

fn opening(dispatcher: &mut Dispatcher) -> Flow {
    let syn = client(0).seq(100).syn().bytes();
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn, 0) else { panic!() };
    assert_eq!(dispatcher.forked(flow), Some(&syn[..]));
    flow
}

fn drops(frame: &[u8], why: Dropped) {
    let mut dispatcher = dispatcher();
    let action = dispatcher.from_outside(frame, 0);
    assert_eq!(action, Uplink::Dropped(why), "{frame:02x?}");
    assert_eq!(dispatcher.counts().dropped.of(why), 1);
    assert_eq!(dispatcher.counts().dropped.total(), 1);
    assert_eq!(dispatcher.live(), 0);
}

fn refuses(frame: &[u8], why: Dropped) {
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    let action = dispatcher.from_fork(flow, frame, 0);
    assert_eq!(action, Port::Dropped(why), "{frame:02x?}");
    assert_eq!(dispatcher.counts().refused.of(why), 1);
    assert_eq!(dispatcher.counts().refused.total(), 1);
}

fn syn() -> Tcp {
    client(0).seq(100).syn()
}

fn answer() -> Tcp {
    fork(0).seq(900).syn().ack(101)
}

#[test]
fn lengths_that_lie_are_malformed_and_every_beginning_of_a_frame_is_dropped() {
    let right = Tcp { options: (vec![1; 4], vec![1; 4]), ..syn() }.bytes();
    for len in 0..right.len() {
        drops(&right[..len], Dropped::Malformed);
        refuses(&right[..len], Dropped::Malformed);
    }
    let with = |at: usize, byte| {
        let mut frame = syn().bytes();
        frame[at] = byte;
        frame
    };
    // The version and header length of IP, its total length, and the header length of TCP.
    for (at, byte) in [(14, 0x65), (14, 0x44), (14, 0x40), (14, 0x4f), (16, 1), (17, 19), (17, 39)]
    {
        drops(&with(at, byte), Dropped::Malformed);
    }
    // A header of IP of 16 bytes, behind which all is in its place.
    let mut short = syn().ack(0x5000_0000).bytes();
    short[14] = 0x44;
    drops(&short, Dropped::Malformed);
    for byte in [0, 0x40, 0x60, 0xf0] {
        drops(&with(46, byte), Dropped::Malformed);
    }
}

#[test]
fn a_bit_that_has_changed_on_the_way_is_found_wherever_it_is() {
    let right = syn().bytes();
    for bit in 0..right.len() * 8 {
        let mut frame = right.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        let mut dispatcher = dispatcher();
        let action = dispatcher.from_outside(&frame, 0);
        // The address that it came from has no checksum but the frame's own, which is gone by now. Its first bit says
        // that it is of many.
        let is_sender = (49..96).contains(&bit);
        assert_eq!(matches!(action, Uplink::Fork(_)), is_sender, "{bit}: {action:?}");
    }
}

#[test]
fn what_is_not_tcp_over_ipv4_is_dropped() {
    for ethertype in [[0x81, 0], [0x88, 0xa8], [0x86, 0xdd], [0, 46], [0, 0]] {
        for (frame, check) in
            [(syn(), drops as fn(&[u8], Dropped)), (answer(), refuses as fn(&[u8], Dropped))]
        {
            let mut frame = frame.bytes();
            frame[12..14].copy_from_slice(&ethertype);
            check(&frame, Dropped::Protocol);
        }
    }
    for protocol in [0, 1, 17, 41, 47, 50, 255] {
        drops(&Tcp { protocol, ..syn() }.bytes(), Dropped::Protocol);
        refuses(&Tcp { protocol, ..answer() }.bytes(), Dropped::Protocol);
    }
    // A tag is not looked behind.
    let mut tagged = syn().bytes();
    tagged.splice(12..12, [0x81, 0, 0, 1]);
    drops(&tagged, Dropped::Protocol);
}

#[test]
fn parts_of_packets_are_dropped() {
    for fragment in [0x2000, 0x2001, 1, 0x1fff, 0x6000] {
        drops(&Tcp { fragment, ..syn() }.bytes(), Dropped::Fragment);
        refuses(&Tcp { fragment, ..answer() }.bytes(), Dropped::Fragment);
    }
}

#[test]
fn what_is_for_others_is_dropped() {
    for frame in [
        Tcp { to: ALL, ..syn() },
        Tcp { to: [2, 0, 0, 0, 0, 2], ..syn() },
        Tcp { target: ([10, 0, 2, 16], PORT), ..syn() },
        Tcp { target: (IP, 81), ..syn() },
    ] {
        drops(&frame.bytes(), Dropped::Foreign);
    }
}

#[test]
fn what_is_from_nobody_is_dropped() {
    for frame in [
        Tcp { from: TEMPLATE, ..syn() },
        Tcp { from: [3, 0, 0, 0, 0, 9], ..syn() },
        Tcp { from: [0; 6], ..syn() },
        Tcp { source: (IP, 5_000), ..syn() },
        Tcp { source: ([127, 0, 0, 1], 5_000), ..syn() },
        Tcp { source: ([0, 0, 0, 0], 5_000), ..syn() },
        Tcp { source: ([224, 0, 0, 1], 5_000), ..syn() },
        Tcp { source: ([255; 4], 5_000), ..syn() },
        Tcp { source: ([192, 0, 2, 1], 0), ..syn() },
    ] {
        drops(&frame.bytes(), Dropped::Source);
    }
}

#[test]
fn what_begins_no_flow_asks_for_no_fork() {
    for frame in [
        client(0).seq(1),
        client(0).seq(1).ack(1),
        client(0).seq(1).ack(1).data(5),
        client(0).seq(1).ack(1).fin(),
        client(0).seq(1).rst(),
        syn().ack(1),
        syn().fin(),
        syn().rst(),
        syn().fin().rst().ack(7),
    ] {
        drops(&frame.bytes(), Dropped::Unknown);
    }
    drops(&syn().data(1).bytes(), Dropped::Data);
}

#[test]
fn before_its_fork_is_there_nothing_but_a_syn_and_a_rst_is_for_a_flow() {
    let mut dispatcher = dispatcher();
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn().bytes(), 0) else { panic!() };
    for (frame, why) in [
        (client(0).seq(101).ack(1), Dropped::Early),
        (syn().ack(1), Dropped::Early),
        (syn().fin(), Dropped::Early),
        (syn().data(1), Dropped::Data),
    ] {
        assert_eq!(dispatcher.from_outside(&frame.bytes(), 0), Uplink::Dropped(why));
    }
    let early = dispatcher.from_fork(flow, &answer().bytes(), 0);
    assert_eq!(early, Port::Dropped(Dropped::Early));
    assert_eq!(dispatcher.forked(flow), Some(&syn().bytes()[..]));
}

#[test]
fn a_fork_sends_from_its_own_address_to_its_own_client_alone() {
    let mut wrong_client = answer();
    wrong_client.target.1 += 1;
    for frame in [
        Tcp { from: [2, 0, 0, 0, 0, 2], ..answer() },
        Tcp { from: ROUTER, ..answer() },
        Tcp { to: ALL, ..answer() },
        Tcp { to: [2, 0, 0, 0, 0, 2], ..answer() },
        Tcp { source: ([10, 0, 2, 16], PORT), ..answer() },
        Tcp { source: (IP, 81), ..answer() },
        Tcp { target: ([198, 51, 100, 7], 5_000), ..answer() },
        wrong_client,
    ] {
        refuses(&frame.bytes(), Dropped::Foreign);
    }
    // Options of IP, be they a source route or nothing.
    for options in [vec![0x83, 7, 4, 198, 51, 100, 7, 0], vec![1; 4]] {
        let frame = Tcp { options: (options, vec![]), ..answer() };
        refuses(&frame.bytes(), Dropped::Foreign);
    }
    // It has no other connection, either.
    for frame in [fork(0).seq(1).syn(), answer().fin(), answer().rst()] {
        refuses(&frame.bytes(), Dropped::Early);
    }
}

#[test]
fn a_fork_sends_nothing_of_another_flow() {
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    let other = client(1).seq(100).syn().bytes();
    let Uplink::Fork(other) = dispatcher.from_outside(&other, 0) else { panic!() };
    dispatcher.forked(other).unwrap();
    let foreign = Port::Dropped(Dropped::Foreign);
    assert_eq!(dispatcher.from_fork(other, &answer().bytes(), 0), foreign);
    assert_eq!(dispatcher.from_fork(flow, &answer().bytes(), 0), Port::Send);
}

#[test]
fn what_a_fork_puts_behind_its_packet_does_not_go_out() {
    let mut filled = answer().bytes();
    assert!(filled.len() < 60);
    filled.resize(61, 0);
    refuses(&filled, Dropped::Foreign);
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    assert_eq!(dispatcher.from_fork(flow, &filled[..60], 0), Port::Send);
}

#[test]
fn whoever_asks_for_the_templates_address_is_told() {
    let mut dispatcher = dispatcher();
    let asker = (ROUTER, [10, 0, 2, 2]);
    for (to, sender) in [(ALL, asker), (TEMPLATE, asker), (ALL, (ROUTER, [0; 4]))] {
        let request = arp(1, (ROUTER, to), sender, ([0; 6], IP));
        let answer = arp(2, (TEMPLATE, ROUTER), (TEMPLATE, IP), sender);
        assert_eq!(dispatcher.from_outside(&request, 0), Uplink::Answer(&answer));
    }
    assert_eq!(dispatcher.counts().answered, 3);
    // Others are not there; nobody says what is not so; and an answer changes nothing.
    let other = [2, 0, 0, 0, 0, 7];
    for request in [
        arp(1, (ROUTER, ALL), asker, ([0; 6], [10, 0, 2, 16])),
        arp(1, (ROUTER, [2, 0, 0, 0, 0, 2]), asker, ([0; 6], IP)),
        arp(1, (other, ALL), asker, ([0; 6], IP)),
        arp(1, (TEMPLATE, ALL), (TEMPLATE, [10, 0, 2, 2]), ([0; 6], IP)),
        arp(1, (ROUTER, ALL), (ROUTER, IP), ([0; 6], IP)),
        arp(1, (ALL, ALL), (ALL, [10, 0, 2, 2]), ([0; 6], IP)),
        arp(2, (ROUTER, TEMPLATE), asker, (TEMPLATE, IP)),
        arp(3, (ROUTER, ALL), asker, ([0; 6], IP)),
    ] {
        drops(&request, Dropped::Arp);
    }
    // Of another kind of addresses.
    let right = arp(1, (ROUTER, ALL), asker, ([0; 6], IP));
    for at in [15, 16] {
        let mut frame = right.clone();
        frame[at] ^= 0x40;
        drops(&frame, Dropped::Arp);
    }
    for at in [18, 19] {
        let mut frame = right.clone();
        frame[at] = 0xff;
        drops(&frame, Dropped::Malformed);
        frame[at] = 5;
        drops(&frame, Dropped::Arp);
    }
    drops(&right[..41], Dropped::Malformed);
}

#[test]
fn whatever_a_fork_asks_for_is_at_the_next_hop_of_its_flow() {
    let mut dispatcher = dispatcher();
    let flow = opening(&mut dispatcher);
    let own = (TEMPLATE, IP);
    for wants in [[10, 0, 2, 2], [192, 0, 2, 1]] {
        for to in [ALL, ROUTER, [2, 0, 0, 0, 0, 7]] {
            let request = arp(1, (TEMPLATE, to), own, ([0; 6], wants));
            let answer = arp(2, (ROUTER, TEMPLATE), (ROUTER, wants), own);
            assert_eq!(dispatcher.from_fork(flow, &request, 0), Port::Answer(&answer));
        }
    }
    assert_eq!(dispatcher.counts().told, 6);
    let gateway = [10, 0, 2, 2];
    for lie in [
        // An announcement, a probe, an answer, and two who say that they are others.
        arp(1, (TEMPLATE, ALL), own, ([0; 6], IP)),
        arp(1, (TEMPLATE, ALL), (TEMPLATE, [0; 4]), ([0; 6], IP)),
        arp(2, (TEMPLATE, ROUTER), (TEMPLATE, gateway), (ROUTER, [192, 0, 2, 1])),
        arp(1, (TEMPLATE, ALL), (TEMPLATE, gateway), ([0; 6], [192, 0, 2, 1])),
        arp(1, (TEMPLATE, ALL), (ROUTER, IP), ([0; 6], gateway)),
    ] {
        refuses(&lie, Dropped::Arp);
    }
}
