//! The switch beside a naive model of it, while ports come and go; and its limits beside an account of what was sent.

use mayfly_switch::{Config, Dropped, Head, Limits, MAX_PORTS, Mac, NoPort, Place, Port, Switch};
use proptest::prelude::*;

fn mac(number: u8) -> Mac {
    [2, 0, 0, 0, 0, number]
}

fn head(to: Mac, from: Mac) -> Head {
    let mut head = [0; 14];
    head[..6].copy_from_slice(&to);
    head[6..12].copy_from_slice(&from);
    head
}

fn config(number: u8, network: u32, isolated: bool) -> Config {
    Config { place: Place::Card(mac(number)), network, isolated, limits: Limits::NONE }
}

fn uplink(network: u32) -> Config {
    Config { place: Place::Uplink, ..config(1, network, false) }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, u32, bool),
    AddUplink(u32),
    Remove(usize),
    /// From which port; by which address, and to which: those of numbers, or all.
    Send(usize, u8, Option<u8>),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..8_u8, 0..2_u32, any::<bool>()).prop_map(|(mac, net, alone)| Step::Add(mac, net, alone)),
        1 => (0..2_u32).prop_map(Step::AddUplink),
        1 => (0..8_usize).prop_map(Step::Remove),
        4 => (0..8_usize, 1..8_u8, prop::option::of(1..9_u8)).prop_map(|(from, by, to)| Step::Send(from, by, to)),
    ]
}

/// A port of the model: its number, its address (0 for an uplink), its network, and whether it is isolated.
type Known = (Port, u8, u32, bool);

proptest! {
    #[test]
    fn a_frame_reaches_the_ports_that_it_may_and_no_others(steps in prop::collection::vec(any_step(), 0..80)) {
        let mut switch = Switch::new();
        let mut known: Vec<Known> = Vec::new();
        for step in steps {
            match step {
                Step::Add(number, network, isolated) => {
                    let taken = known.iter().any(|(_, mac, net, _)| (*mac, *net) == (number, network));
                    let added = switch.try_add(config(number, network, isolated), (number, network), 0);
                    prop_assert_eq!(added.is_err(), taken);
                    if let Ok(port) = added {
                        known.push((port, number, network, isolated));
                    }
                }
                Step::AddUplink(network) => {
                    let taken = known.iter().any(|(_, mac, net, _)| (*mac, *net) == (0, network));
                    let added = switch.try_add(uplink(network), (0, network), 0);
                    prop_assert_eq!(added.err(), taken.then_some(NoPort::TwoUplinks));
                    if let Ok(port) = added {
                        known.push((port, 0, network, false));
                    }
                }
                Step::Remove(which) if which < known.len() => {
                    let (port, number, network, _) = known.remove(which);
                    prop_assert_eq!(switch.remove(port), Some((number, network)));
                    prop_assert_eq!(switch.remove(port), None);
                    prop_assert_eq!(switch.forward(port, head(mac(1), mac(number)), 60, 0).err(), Some(Dropped::Gone));
                }
                Step::Send(which, by, to) if which < known.len() => {
                    let (from, own, network, isolated) = known[which];
                    let address = to.map_or([0xff; 6], mac);
                    let is_card = |number| known.iter().any(|(_, mac, net, _)| (*mac, *net) == (number, network));
                    // A card sends as itself, and an uplink as anybody but a card.
                    let may = if own == 0 { !is_card(by) } else { by == own };
                    let expected: Vec<_> = known
                        .iter()
                        .filter(|(port, mac, net, alone)| {
                            *port != from && *net == network && !(*alone && isolated)
                                && to.is_none_or(|to| to == *mac || (*mac == 0 && !is_card(to)))
                        })
                        .map(|(port, mac, net, _)| (*port, (*mac, *net)))
                        .collect();
                    let sent = switch.forward(from, head(address, mac(by)), 100, 0);
                    match sent {
                        Err(Dropped::Foreign) => prop_assert!(!may),
                        Err(Dropped::Unknown) => prop_assert!(may && expected.is_empty()),
                        Err(other) => prop_assert!(false, "{:?}", other),
                        Ok(mut targets) => {
                            prop_assert!(may);
                            let mut got = Vec::new();
                            while let Some(target) = switch.next_target(&mut targets) {
                                got.push(target);
                            }
                            prop_assert_eq!(got, expected);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_port_sends_no_more_than_its_limits_and_no_less_where_it_always_wants_to(
        bytes in 10_000..10_000_000_u64,
        len in 60..1514_u64,
        gap in 10_000..100_000_u64,
    ) {
        let mut switch = Switch::new();
        let limits = Limits { bytes: Some(bytes), packets: None };
        let one = switch.try_add(Config { limits, ..config(1, 0, false) }, (), 0).unwrap();
        switch.try_add(config(2, 0, false), (), 0).unwrap();
        let (mut now, mut sent, mut offered) = (0, 0, 0);
        let seconds = 1;
        while now < seconds * 1_000_000_000 {
            offered += len;
            if switch.forward(one, head(mac(2), mac(1)), len, now).is_ok() {
                sent += len;
            }
            now += gap;
        }
        let burst = (bytes / 10).max(1 << 17);
        prop_assert!(sent <= seconds * bytes + burst);
        prop_assert!(sent + len >= (seconds * bytes).min(offered) * 99 / 100, "{sent} of {offered}");
        let counts = switch.counts(one).unwrap();
        prop_assert_eq!(counts.sent_bytes, sent);
        prop_assert_eq!((counts.sent + counts.limited) * len, offered);
    }
}

#[test]
fn a_port_that_comes_while_a_frame_is_under_way_does_not_get_it() {
    let mut switch = Switch::new();
    let one = switch.try_add(config(1, 0, false), 1, 0).unwrap();
    let other = switch.try_add(config(2, 0, false), 2, 0).unwrap();
    let mut targets = switch.forward(one, head([0xff; 6], mac(1)), 60, 0).unwrap();
    // It has the address, and the place, of the one that was there.
    switch.remove(other);
    switch.try_add(config(2, 0, false), 3, 0).unwrap();
    assert_eq!(switch.next_target(&mut targets), None);
}

#[test]
fn what_is_for_a_bridge_goes_to_nobody_and_other_multicast_to_all() {
    let mut switch = Switch::new();
    let one = switch.try_add(config(1, 0, false), 1, 0).unwrap();
    switch.try_add(config(2, 0, false), 2, 0).unwrap();
    for (to, passes) in [
        ([1, 0x80, 0xc2, 0, 0, 0xe], false),
        ([1, 0x80, 0xc2, 0, 0, 0x10], true),
        ([0x33, 0x33, 0, 0, 0, 1], true),
    ] {
        assert_eq!(switch.forward(one, head(to, mac(1)), 60, 0).is_ok(), passes, "{to:x?}");
    }
}

#[test]
fn addresses_of_no_card_and_more_ports_than_there_may_be_are_refused() {
    let mut switch = Switch::new();
    for wrong in [[0; 6], [1, 0, 0, 0, 0, 1], [0xff; 6]] {
        let port = Config { place: Place::Card(wrong), ..config(1, 0, false) };
        assert_eq!(switch.try_add(port, (), 0), Err(NoPort::NotOne));
    }
    for number in 0..MAX_PORTS {
        let mac = [2, 0, 0, 0, (number >> 8) as u8, number as u8];
        let port = Config { place: Place::Card(mac), ..config(1, 0, false) };
        switch.try_add(port, (), 0).unwrap();
    }
    let more = Config { place: Place::Card([2, 1, 0, 0, 0, 0]), ..config(1, 0, false) };
    assert_eq!(switch.try_add(more, (), 0), Err(NoPort::Full));
}

#[test]
fn what_comes_in_from_no_address_or_from_a_cards_goes_to_nobody() {
    let mut switch = Switch::new();
    let out = switch.try_add(uplink(0), 0, 0).unwrap();
    switch.try_add(config(1, 0, false), 1, 0).unwrap();
    for by in [[0; 6], [0xff; 6], [1, 0, 0, 0, 0, 9], mac(1)] {
        let sent = switch.forward(out, head(mac(1), by), 60, 0);
        assert_eq!(sent.err(), Some(Dropped::Foreign), "{by:x?}");
    }
    // For an address behind it: it is not sent back.
    assert_eq!(switch.forward(out, head(mac(7), mac(8)), 60, 0).err(), Some(Dropped::Unknown));
    let mut targets = switch.forward(out, head([0xff; 6], mac(8)), 60, 0).unwrap();
    assert_eq!(switch.next_target(&mut targets).map(|(_, end)| end), Some(1));
    assert_eq!(switch.next_target(&mut targets), None);
    let counts = switch.counts(out).unwrap();
    assert_eq!((counts.refused, counts.unknown, counts.sent), (4, 1, 1));
}

#[test]
fn isolated_cards_reach_the_uplink_and_not_each_other_by_way_of_it() {
    let mut switch = Switch::new();
    let one = switch.try_add(config(1, 0, true), 1, 0).unwrap();
    switch.try_add(config(2, 0, true), 2, 0).unwrap();
    switch.try_add(uplink(0), 0, 0).unwrap();
    assert_eq!(switch.forward(one, head(mac(2), mac(1)), 60, 0).err(), Some(Dropped::Unknown));
    for to in [mac(9), [0xff; 6]] {
        let mut targets = switch.forward(one, head(to, mac(1)), 60, 0).unwrap();
        assert_eq!(switch.next_target(&mut targets).map(|(_, end)| end), Some(0));
        assert_eq!(switch.next_target(&mut targets), None);
    }
}
