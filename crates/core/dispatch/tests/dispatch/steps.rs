//! The first steps of a flow, which many tests begin with.

use crate::wire::{Tcp, client, config, fork};
use mayfly_dispatch::{Dispatcher, Flow, Port, Uplink};

pub(crate) fn dispatcher() -> Dispatcher {
    Dispatcher::try_new(config(4, 4)).unwrap()
}

pub(crate) fn syn(number: u8) -> Tcp {
    client(number).seq(100).syn()
}

/// Client 0 has sent a SYN at 0, and its fork is there.
pub(crate) fn opening(dispatcher: &mut Dispatcher) -> Flow {
    let Uplink::Fork(flow) = dispatcher.from_outside(&syn(0).bytes(), 0) else { panic!() };
    assert_eq!(dispatcher.forked(flow), Some(&syn(0).bytes()[..]));
    flow
}

/// The handshake is done: 101 is the client's next number, and 901 the fork's.
pub(crate) fn open(dispatcher: &mut Dispatcher) -> Flow {
    let flow = opening(dispatcher);
    sends(dispatcher, flow, &fork(0).seq(900).syn().ack(101));
    delivers(dispatcher, flow, &client(0).seq(101).ack(901));
    flow
}

pub(crate) fn sends(dispatcher: &mut Dispatcher, flow: Flow, segment: &Tcp) {
    assert_eq!(dispatcher.from_fork(flow, &segment.bytes(), 0), Port::Send, "{segment:?}");
}

pub(crate) fn delivers(dispatcher: &mut Dispatcher, flow: Flow, segment: &Tcp) {
    let action = dispatcher.from_outside(&segment.bytes(), 0);
    assert_eq!(action, Uplink::Deliver(flow), "{segment:?}");
}
