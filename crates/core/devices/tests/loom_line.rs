//! Lines under loom: whatever a driver is told after it has acknowledged, or does not acknowledge, comes with an edge.

#![cfg(mayfly_loom)]

use loom::sync::{Arc, Mutex};
use loom::thread;

use mayfly_devices::line::{fall, settle};

/// A line, as an interrupt controller sees it that takes edges.
#[derive(Default)]
struct Edges {
    is_high: bool,
    is_pending: bool,
}

/// A device, of which the driver was told of reason 1, and has taken the interrupt.
struct Device {
    reasons: Mutex<u32>,
    line: Mutex<Edges>,
}

impl Device {
    fn new() -> Arc<Self> {
        let line = Edges { is_high: true, is_pending: false };
        Arc::new(Self { reasons: Mutex::new(1), line: Mutex::new(line) })
    }

    fn level(&self) -> bool {
        *self.reasons.lock().unwrap() != 0
    }

    fn drive(&self, high: bool) {
        let mut line = self.line.lock().unwrap();
        line.is_pending |= high && !line.is_high;
        line.is_high = high;
    }

    /// The driver is told of reasons.
    fn tell(&self, reasons: u32) {
        let is_new = {
            let mut told = self.reasons.lock().unwrap();
            let before = *told;
            *told |= reasons;
            *told != before
        };
        if is_new {
            settle(|| self.level(), |level| self.drive(level));
        }
    }

    /// The driver acknowledges what it has found.
    fn acknowledge(&self, reasons: u32) {
        *self.reasons.lock().unwrap() &= !reasons;
        fall(|| self.level(), |level| self.drive(level));
    }

    /// The driver takes its interrupts, until there is none.
    fn take(&self) {
        loop {
            let is_pending = core::mem::take(&mut self.line.lock().unwrap().is_pending);
            if !is_pending {
                break;
            }
            let found = *self.reasons.lock().unwrap();
            self.acknowledge(found);
        }
    }
}

/// The driver acknowledges reason 1 while each of some threads tells it of reasons, one after the other.
fn nothing_is_lost(all: &'static [&'static [u32]]) {
    loom::model(move || {
        let device = Device::new();
        let tell = |reasons: &'static [u32]| {
            let device = Arc::clone(&device);
            thread::spawn(move || reasons.iter().for_each(|reason| device.tell(*reason)))
        };
        let threads: Vec<_> = all.iter().map(|reasons| tell(reasons)).collect();
        device.acknowledge(1);
        for thread in threads {
            thread.join().unwrap();
        }
        device.take();
        assert_eq!(*device.reasons.lock().unwrap(), 0, "it was told by no edge");
    });
}

#[test]
fn what_is_told_while_the_driver_acknowledges_comes_with_an_edge() {
    nothing_is_lost(&[&[1]]);
}

#[test]
fn so_does_what_is_told_of_another_kind() {
    nothing_is_lost(&[&[2, 1]]);
}

#[test]
fn so_does_what_two_threads_tell_of() {
    nothing_is_lost(&[&[1], &[2]]);
}
