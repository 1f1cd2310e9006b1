//! The device behind a guest's I/O address. vCPUs look it up under SRCU, and writers change it by publishing a new
//! version.
//!
//! An [`IoBus`] holds devices and ioeventfds. Each device has a range of addresses of its own. Ioeventfds take single
//! writes out of those ranges. vCPUs look up in sorted arrays that never change. A change copies the arrays and publishes
//! the copy. A registration does not wait for readers of the old arrays. An unregistration waits for those readers and for
//! no others.
//!
//! With the feature `std`, which provides `platform::Host`:
//!
//! ```
//! use std::sync::Arc;
//! use mayfly_iobus::platform::{Host, Platform};
//! use mayfly_iobus::{IoBus, IoRange, Ioeventfd, LastHit, WriteHit};
//! use mayfly_iobus::srcu::{Config, Srcu};
//!
//! let platform: Arc<dyn Platform> = Arc::new(Host::new());
//! let domain = Srcu::try_new(platform.clone(), Config::default())?;
//! let bus = IoBus::try_new(&domain, platform)?;
//! let disk = IoRange { start: 0x1000, len: 0x200 };
//! bus.register(disk, "disk")?;
//! bus.register_eventfd(Ioeventfd { address: 0x1050, len: 4, datamatch: None }, "disk's queue")?;
//!
//! // A vCPU, at an exit:
//! let vcpu = domain.reader()?;
//! let mut last = LastHit::default();
//! {
//!     let section = vcpu.lock();
//!     let read = bus.find(&section, &mut last, 0x1050, 4).unwrap();
//!     assert_eq!((*read.device, read.offset), ("disk", 0x50));
//!     let write = bus.find_write(&section, &mut last, 0x1050, 4, 1).unwrap();
//!     assert!(matches!(write, WriteHit::Eventfd(&"disk's queue")));
//!     assert!(bus.find(&section, &mut last, 0x11fe, 4).is_none(), "past the end: an exit");
//! }
//!
//! assert_eq!(bus.unregister(disk)?, "disk");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From when on a device is seen
//!
//! Every section that begins after the registration returned sees the device. *After* is any happens-before: a message, a
//! kick, a flag in guest memory. A section that was open before may find the bus with or without the device. A caller that
//! needs to know that no section can miss the device any more calls [`IoBus::settle`], which waits for those sections.
//!
//! The argument, the rules and the costs are in `docs/iobus.md`.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bus;
mod capacity;
mod draft;
mod edit;
mod error;
mod ioeventfd;
mod lookup;
mod owner;
mod range;
mod relocation;
mod replaced;
mod snapshot;
mod table;
mod version;

/// What this crate asks of its surroundings, and the SRCU that its readers and writers use. A user of this crate needs to
/// name no other crate.
pub use {mayfly_platform as platform, mayfly_srcu as srcu};

pub use bus::IoBus;
pub use capacity::MAX_DEVICES;
pub use edit::Edit;
pub use error::{Error, Refused};
pub use ioeventfd::Ioeventfd;
pub use lookup::{Hit, LastHit, WriteHit};
pub use range::IoRange;
pub use relocation::Relocation;
pub use replaced::{Devices, Replaced};
