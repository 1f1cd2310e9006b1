//! The network of the machine's VMs: their cards, the switch between them, and the way out of the machine ([`uplink`]).
//!
//! The thread of a VM's devices carries what the VM sends: from the sender's memory into the buffers of each receiver, and
//! then it tells the receiver. So the sender's account pays for its frames, and a receiver without buffers loses its own
//! frames, and holds up nobody. The thread waits for no memory of the receiver's.
//!
//! **Locks.** The switch has a spin lock, which is held for a decision. A card has a lock that threads sleep for, its own
//! vCPUs among them. One card is locked at a time: a frame is taken from its sender's card, then given to each receiver's,
//! and then given back. So two VMs that send to each other do not wait for each other. A thread that has a card locked
//! keeps its processor, and waits for no memory: neither the sender nor the receiver can hold up the other one's vCPUs. Nor
//! can the receiver's vCPUs hold up the sender, by taking the lock of their card over and over: the sender sleeps for it a number of
//! times at most, and the receiver loses the frame then. Where its interrupt line does not settle at once for the same
//! reason, the thread of its own devices sees to it.
//!
//! **What is judged is what is sent.** The switch decides by the beginning of a frame, of which there is a copy: the guest
//! may change its memory at any time.
//!
//! **Ends.** A card is on the switch while its VM's devices are served. When it leaves, it waits for the threads that are
//! just giving it a frame. So nobody else frees the VM's memory.
//!
//! **Forks.** A fork has the card of its frozen VM, address and all. So it is on no network: its card is told that there is
//! none, and what its driver sends all the same goes to nobody. A fork of a service has a seat at the service's [`Desk`].
//!
//! **The way out.** The network that is named [`UPLINK`] has the machine's own network card as its uplink, while a card of
//! a VM is on it. What a VM sends there is copied to a buffer of the machine's card by the thread of the VM's devices. What
//! comes from there is carried by a thread of its own, whose processor time is on an account of its own: so a flood takes
//! from VMs no more than another VM would.

mod bytes;
mod card;
mod desk;
mod outgoing;
mod ports;

pub(crate) mod uplink;

pub(crate) use card::{Card, make};
pub(crate) use desk::{Desk, Seat};
pub(crate) use outgoing::UPLINK;
pub(crate) use ports::now;
