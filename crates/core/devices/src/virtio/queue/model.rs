//! A ring and its driver under loom: the device's side is the one above, and the driver's is as virtio 1.2 has it (2.7.7,
//! 2.7.10).
//!
//! Neither party may go to rest while the other believes that it is awake: each of the tests has one write and look, and
//! the other too, in every interleaving and with every value that a load may return.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, Ordering, fence};
use loom::thread;

use super::{NO_INTERRUPT, Queue, Rules, Used};
use crate::memory::{BadAddress, GuestMemory};
use crate::virtio::chain::Chain;

const SIZE: u16 = 2;

const DESCRIPTORS: u64 = 0x1000;
const DRIVER: u64 = 0x2000;
const DEVICE: u64 = 0x3000;

const EVENT_INDEX: Rules = Rules { indirect: false, event_index: true };
const FLAGS: Rules = Rules { indirect: false, event_index: false };

/// What no party reaches in a test: it wants to be told of nothing.
const NEVER: u16 = 0x8000;

/// What of the guest's memory the queue takes.
#[derive(Default)]
struct Ring {
    driver_flags: AtomicU16,
    available: AtomicU16,
    heads: [AtomicU16; SIZE as usize],
    /// From which index of what is used on the driver wants to be told.
    used_event: AtomicU16,
    used: AtomicU16,
    /// From which index of what is available on the device wants to be told.
    available_event: AtomicU16,
    /// What was used, as heads.
    elements: [AtomicU16; SIZE as usize],
}

impl Ring {
    /// On which neither wants to be told of anything.
    fn new() -> Arc<Self> {
        let ring = Self::default();
        ring.driver_flags.store(NO_INTERRUPT, Ordering::Relaxed);
        ring.used_event.store(NEVER, Ordering::Relaxed);
        ring.available_event.store(NEVER, Ordering::Relaxed);
        Arc::new(ring)
    }

    fn word(&self, address: u64) -> Result<&AtomicU16, BadAddress> {
        let last = u64::from(SIZE);
        match (address & !0xfff, address & 0xfff) {
            (DRIVER, 0) => Ok(&self.driver_flags),
            (DRIVER, 2) => Ok(&self.available),
            (DRIVER, at) if at == 4 + 2 * last => Ok(&self.used_event),
            (DRIVER, at) => self.heads.get((at as usize - 4) / 2).ok_or(BadAddress { address }),
            (DEVICE, 2) => Ok(&self.used),
            (DEVICE, at) if at == 4 + 8 * last => Ok(&self.available_event),
            _ => Err(BadAddress { address }),
        }
    }

    /// The driver gives the device its first buffer; whether it notifies it of that.
    fn offer(&self, rules: Rules) -> bool {
        self.heads[0].store(1, Ordering::Relaxed);
        self.available.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        !rules.event_index || self.available_event.load(Ordering::Relaxed) == 0
    }

    /// The driver wants to be told of what is used first, and looks; whether there is something already.
    fn await_used(&self, rules: Rules) -> bool {
        if rules.event_index {
            self.used_event.store(0, Ordering::Relaxed);
        } else {
            self.driver_flags.store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        let is_used = self.used.load(Ordering::Acquire) == 1;
        if is_used {
            assert_eq!(self.elements[0].load(Ordering::Relaxed), 1, "the index came first");
        }
        is_used
    }
}

impl GuestMemory for Ring {
    /// Of descriptors: each is a buffer of its own.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        if address & !0xfff != DESCRIPTORS {
            return Err(BadAddress { address });
        }
        into.fill(0);
        // Of so many bytes.
        into[8] = 16;
        Ok(())
    }

    /// Of elements that are used.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        let index = (address.wrapping_sub(DEVICE + 4) / 8) as usize;
        let element = self.elements.get(index).ok_or(BadAddress { address })?;
        element.store(from[0].into(), Ordering::Relaxed);
        Ok(())
    }

    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress> {
        Ok(self.word(address)?.load(Ordering::Acquire))
    }

    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress> {
        self.word(address)?.store(value, Ordering::Release);
        Ok(())
    }
}

fn queue() -> Queue {
    let mut queue = Queue {
        size: SIZE,
        descriptors: DESCRIPTORS,
        driver: DRIVER,
        device: DEVICE,
        ..Queue::new()
    };
    queue.start();
    assert!(queue.ready);
    queue
}

/// The device looks, and asks to be told before it rests; whether it has found something.
fn serve(queue: &mut Queue, rules: Rules, ring: &Ring) -> bool {
    let mut chain = Chain::new();
    loop {
        if let Some(head) = queue.next(rules, &mut chain, ring).unwrap() {
            assert_eq!((head, chain.readable()), (1, 16));
            return true;
        }
        if !queue.rest(rules, ring).unwrap() {
            return false;
        }
    }
}

#[test]
fn a_device_that_rests_is_notified_of_what_it_has_not_found() {
    for rules in [EVENT_INDEX, FLAGS] {
        loom::model(move || {
            let ring = Ring::new();
            let device = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || serve(&mut queue(), rules, &ring))
            };
            let notifies = ring.offer(rules);
            let has_found = device.join().unwrap();
            assert!(notifies || has_found, "the buffer is forgotten");
        });
    }
}

#[test]
fn a_driver_that_rests_is_told_of_what_it_has_not_found() {
    for rules in [EVENT_INDEX, FLAGS] {
        loom::model(move || {
            let ring = Ring::new();
            let driver = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.await_used(rules))
            };
            let tells = queue().complete(rules, Used { head: 1, written: 0 }, &*ring).unwrap();
            let has_found = driver.join().unwrap();
            assert!(tells || has_found, "the driver waits for ever");
        });
    }
}
