//! Frames that come to the machine by its own network card: a thread carries them to the VMs that they are for.

use mayfly_devices::virtio::net::{FRAME_HEAD, Offload};
use mayfly_drivers::{Broken, FRAME_BYTES, Received};
use mayfly_switch::{Counts, Limits};
use mayfly_vm::platform::memory::OutOfMemory;

use super::bytes::Bytes;
use super::outgoing::UPLINK;
use super::ports::{NETWORK, deliver, now};
use crate::bare::own::card::{self, OwnCard};
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Account, Name};

/// Starts the thread, if the machine has a network card.
///
/// # Errors
///
/// [`OutOfMemory`], when there is none for its stack.
pub(crate) fn start() -> Result<(), OutOfMemory> {
    let Some(card) = card::get() else { return Ok(()) };
    let account = Account::apart();
    threads::spawn_for(Name::new("the uplink"), &account, move || {
        let broken = serve(card);
        say!("mayfly: the machine's network card is used no more: {broken}");
    })
}

/// Carries frames, until the card is broken.
fn serve(card: &OwnCard) -> Broken {
    loop {
        let seen = card::bell().rung();
        if let Err(broken) = card.look() {
            return broken;
        }
        loop {
            match card.receive() {
                Err(broken) => return broken,
                Ok(Some(received)) => {
                    carry(&received);
                    card.give_back(received);
                }
                // From now on it interrupts; and there may be one by now.
                Ok(None) if !card.listen() => break,
                Ok(None) => {}
            }
            threads::preemption_point();
        }
        card::bell().wait(seen, u64::MAX);
    }
}

fn carry(received: &Received) {
    let port = NETWORK.lock().uplink.port;
    // No VM is on the network.
    let Some((port, _)) = port else { return };
    let frame = received.frame().filter(|frame| frame.len() <= FRAME_BYTES);
    let head = frame.and_then(|frame| frame.first_chunk::<FRAME_HEAD>());
    let Some((frame, head)) = frame.zip(head) else {
        return NETWORK.lock().switch.refuse(port);
    };
    let len = frame.len() as u64;
    let sent = NETWORK.lock().switch.forward(port, *head, len, now());
    if let Ok(targets) = sent {
        deliver(port, targets, (len, &Offload::default(), &Bytes(frame)), &|| false);
    }
}

/// Bounds how many bytes a second may come in; none is no bound.
pub(crate) fn limit(bytes: Option<u64>) {
    let mut network = NETWORK.lock();
    let limits = Limits { bytes, packets: None };
    network.uplink.limits = limits;
    if let Some((port, _)) = network.uplink.port {
        network.switch.limit(port, limits, now());
    }
}

/// Prints what has become of frames.
pub(crate) fn say_counts() {
    if card::get().is_none() {
        return;
    }
    let counts = {
        let network = NETWORK.lock();
        let mut counts = network.uplink.total;
        let port = network.uplink.port.and_then(|(port, _)| network.switch.counts(port));
        counts += port.unwrap_or_default();
        counts
    };
    let Counts { sent, sent_bytes, received, received_bytes, lost, refused, limited, unknown } =
        counts;
    say!(
        "mayfly: {UPLINK}: {sent} frames came in ({sent_bytes} bytes), {received} went out ({received_bytes} bytes), {lost} were lost for want of room; came in and went nowhere: {refused} malformed or from a VM's address, {limited} beyond the rate, {unknown} to nobody"
    );
}
