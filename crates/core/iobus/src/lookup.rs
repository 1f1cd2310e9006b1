//! What a lookup answers.

/// The device that has all the bytes of an access.
#[derive(Debug)]
pub struct Hit<'a, D> {
    /// The device.
    pub device: &'a D,
    /// Where in the device's range the access begins.
    pub offset: u64,
}

/// Where a write goes.
#[derive(Debug)]
pub enum WriteHit<'a, D> {
    /// It matches the ioeventfd that this was registered with: it is to be signalled, and nothing else is to be done.
    Eventfd(&'a D),
    /// It is a device's.
    Device(Hit<'a, D>),
}

/// Where a vCPU's last lookup on a bus ended; the next one looks there first.
///
/// A guess, checked against the bus before it is believed: after a change of the bus, or on another bus, it is at worst
/// of no use.
#[derive(Clone, Debug, Default)]
pub struct LastHit {
    pub(crate) device: usize,
    pub(crate) eventfd: usize,
}
