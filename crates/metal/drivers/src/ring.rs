//! A virtqueue that has, of each chain that the device was given, what the chain is made of.
//!
//! The device names a chain that it has used by the number of the chain's first descriptor, and may name any number. So
//! there is a place for each number. A number whose place is empty is of no chain that the device has.
//!
//! **Notifications.** The driver makes a chain available, passes a full fence, and reads whether the device wants to be
//! notified. The device writes that it does, passes a full fence, and looks whether there is a chain. One of them sees
//! the other. It is the same in the other direction: [`Ring::listen`] writes that the driver wants an interrupt, passes a
//! full fence, and looks whether a chain was used; its fence pairs with the device's between a used chain and its look at
//! the wish. The event index is not agreed on: virtio-drivers 0.13 compares it without regard to its overflow.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use virtio_drivers::Hal;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

use crate::Broken;
use crate::start::Unusable;

/// What a chain is made of.
///
/// # Safety
///
/// The parts are buffers that the value owns, none of them empty, and the same each time. They are reached by nothing else
/// while the device has the value.
pub(crate) unsafe trait Parts {
    /// Calls `then` with what the device reads, and what it writes.
    fn with<R>(
        &mut self,
        then: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R;
}

/// A queue of `SIZE` descriptors.
pub(crate) struct Ring<H: Hal, I, const SIZE: usize> {
    /// Boxed, as it is larger than a stack likes.
    queue: Box<VirtQueue<H, SIZE>>,
    number: u16,
    /// By the number of the first descriptor.
    under_way: Vec<Option<I>>,
}

impl<H: Hal, I: Parts, const SIZE: usize> Ring<H, I, SIZE> {
    /// Queue `number` of a device that is being started.
    pub(crate) fn new(transport: &mut impl Transport, number: u16) -> Result<Self, Unusable> {
        let mut under_way = Vec::new();
        under_way.try_reserve_exact(SIZE).map_err(|_| Unusable::NoMemory)?;
        under_way.resize_with(SIZE, || None);
        let queue = VirtQueue::new(transport, number, false, false).map_err(Unusable::Queue)?;
        Ok(Self { queue: Box::new(queue), number, under_way })
    }

    /// Makes a chain available to the device.
    ///
    /// # Errors
    ///
    /// The chain, if there are too few descriptors for it.
    pub(crate) fn add(&mut self, mut item: I) -> Result<(), I> {
        // SAFETY: the ring has the item until the device has used the chain, and touches it no more before.
        let token = item.with(|inputs, outputs| unsafe { self.queue.add(inputs, outputs) });
        match token.ok().and_then(|token| self.under_way.get_mut(usize::from(token))) {
            Some(place) => {
                *place = Some(item);
                Ok(())
            }
            None => Err(item),
        }
    }

    /// Notifies the device of what was made available, if it wants that.
    pub(crate) fn notify(&self, transport: &mut impl Transport) {
        // Pairs with the device's: see the module.
        fence(Ordering::SeqCst);
        if self.queue.should_notify() {
            transport.notify(self.number);
        }
    }

    /// The next chain that the device has used, and how many bytes it says that it has written.
    ///
    /// # Errors
    ///
    /// [`Broken::Rings`]: it has used a chain that it was not given.
    pub(crate) fn take(&mut self) -> Result<Option<(I, u32)>, Broken> {
        let Some(token) = self.queue.peek_used() else { return Ok(None) };
        let place = self.under_way.get_mut(usize::from(token)).ok_or(Broken::Rings)?;
        let mut item = place.take().ok_or(Broken::Rings)?;
        let queue = &mut self.queue;
        // SAFETY: these are the parts of the chain with that token.
        let used = item.with(|inputs, outputs| unsafe { queue.pop_used(token, inputs, outputs) });
        let Ok(written) = used else {
            // It has changed its mind.
            *place = Some(item);
            return Err(Broken::Rings);
        };
        Ok(Some((item, written)))
    }

    /// The device need not interrupt when it has used a chain.
    pub(crate) fn ignore(&mut self) {
        self.queue.set_dev_notify(false);
    }

    /// The device is to interrupt when it has used a chain. Returns whether it has used one by now.
    pub(crate) fn listen(&mut self) -> bool {
        self.queue.set_dev_notify(true);
        // Pairs with the device's: see the module.
        fence(Ordering::SeqCst);
        self.queue.can_pop()
    }

    /// What the device had, which was stopped.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = I> {
        self.under_way.iter_mut().filter_map(Option::take)
    }
}
