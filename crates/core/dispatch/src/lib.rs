//! Gives each TCP connection that comes from outside a fork of a virtual machine of its own.
//!
//! All forks of a frozen machine, the *template*, have its MAC and its IP address. So no switch can tell them apart. The
//! dispatcher stands between them and the uplink, and knows them by the connection that each was made for, its *flow*. It
//! has no hardware, no locks and no clock: the embedder has a lock around it, gives it frames and the time, and does what
//! it says.
//!
//! ```
//! use mayfly_dispatch::{Config, Dispatcher, Timers, Uplink};
//!
//! let config = Config {
//!     mac: [2, 0, 0, 0, 0, 1],
//!     ip: [10, 0, 2, 15],
//!     port: 80,
//!     flows: 64,
//!     remembered: 256,
//!     timers: Timers::DEFAULT,
//! };
//! let mut dispatcher = Dispatcher::try_new(config)?;
//! # let (frame, now) = (&[0; 60], 0);
//! match dispatcher.from_outside(frame, now) {
//!     Uplink::Fork(_flow) => { /* make a fork, and then call `forked`, or `failed` */ }
//!     Uplink::Deliver(_flow) => { /* give the frame to the flow's fork */ }
//!     Uplink::DeliverLast(_flow) => { /* give it, and then destroy the fork */ }
//!     Uplink::Cancelled(_flow) => { /* the fork is not needed any more: call `failed`, or `forked` when it is there */ }
//!     Uplink::Answer(_bytes) => { /* send these out */ }
//!     Uplink::Kept | Uplink::Dropped(_) => {}
//! }
//! # Ok::<(), mayfly_dispatch::NoDispatcher>(())
//! ```
//!
//! # The life of a flow
//!
//! A flow is the pair of the client's address and port. The other half of its 5-tuple is the same for all flows.
//!
//! 1. **Asked.** A SYN of an unknown flow asks for a fork ([`Uplink::Fork`]). The SYN is kept, without data at most 134 bytes.
//!    The same SYN again makes no second fork. A SYN with another sequence number takes its place: nobody has seen the
//!    first. A RST cancels the flow. A flow that ends while its fork is being made has its place until that is there
//!    ([`Dispatcher::forked`]), or will never be ([`Dispatcher::failed`]); its client may begin another meanwhile.
//! 2. **Opening.** The fork is there, and [`Dispatcher::forked`] returns the SYN for it. From now on whatever comes of
//!    this flow is delivered to the fork, whose TCP decides what to do with it, further SYNs included (RFC 9293, section
//!    3.10.7.4). Where the client does not complete the handshake, the flow is *half open*, and a timer ends it.
//! 3. **Open.** The client has acknowledged the fork's SYN. While nothing comes of the client that acknowledges what the
//!    fork has sent, the flow is *abandoned*, and a timer ends it. Another ends it in any case.
//! 4. **Over.** Each side's FIN has been acknowledged by the other one, or either has sent a RST. The frame that does it is
//!    delivered, and then the fork is destroyed ([`Uplink::DeliverLast`], [`Port::SendLast`]).
//! 5. **Remembered.** After FINs, the fork's last acknowledgement is remembered for a while, without the fork: its headers,
//!    without data, with the number that is next, and with checksums of the dispatcher's. Where the client sends its FIN
//!    again, since that acknowledgement was lost, the dispatcher answers in the fork's place. This is the TIME-WAIT of TCP,
//!    with these rules:
//!    - A new SYN of the same 5-tuple wins, and gets a fork, if its sequence number is beyond that of the old flow's FIN
//!      (RFC 9293, section 3.6.1, and RFC 6191, without timestamps). An older one is a duplicate, and is dropped; its
//!      client sends it again, until the flow is forgotten.
//!    - A RST does not end it (RFC 1337).
//!    - A FIN that comes again does not begin the timer anew: so nobody outside has a flow remembered for ever.
//!    - Where there is no room to remember one more, the one that would be forgotten first is.
//!
//! # Who is believed
//!
//! **Nobody outside**, by a 5-tuple alone. A RST ends a flow if its sequence number is the one after what has come without
//! a gap, or the one that the fork has acknowledged last: the fork may have lost what came after (RFC 5961, section 3.2).
//! Any other is delivered, and ends nothing. An acknowledgement counts if it is of something that the fork has sent. A FIN
//! takes the place of another only if it is in order. The checksums of IP and TCP are right in all that is delivered. The
//! address that answers go to is that by which the SYN came.
//!
//! The dispatcher does not know the fork's window, nor what the fork's buffers had no room for. So there is a difference
//! between what it takes from a frame and what the fork takes:
//!
//! - A segment that the fork drops (a number out of its window, a source route) may keep a flow from being abandoned, if
//!   its acknowledgement is right. The flow lasts no longer than [`Timers::longest`].
//! - A RST that follows a gap, before the fork has acknowledged what was behind it, ends the fork's connection and not
//!   the flow. The fork is destroyed when it ends by itself, or by a timer.
//! - A RST with the number that was acknowledged last ends the flow, and the fork may have dropped it, since it has more.
//!   Its sender knows what is on the wire.
//!
//! **A fork** is believed what it says of its own flow, whose end is its own end; its checksums are not looked at, for the
//! client does. A RST of it ends the flow if it has an acknowledgement, or the number of something that the fork has sent:
//! any other answers a guess, and the fork's TCP goes on (RFC 9293, section 3.10.7.4). It sends nothing but TCP of its flow,
//! from the template's addresses to the client's, without options of IP, and learns nothing of others. Its ARP requests are
//! answered by the dispatcher: for each address, the next hop is the one by which its SYN came. No table of addresses is
//! made of what a fork says.
//!
//! # Time
//!
//! The clock is the embedder's, and must be monotonic. A time before the latest one is taken for that; a time that is too
//! late ends flows too early, and all later deadlines are as wrong. A timer ends nothing by itself: what is due ends when
//! [`Dispatcher::expired`] is called. Until then a late frame counts as if it were in time, a SYN may find no room, and
//! what is over is remembered. So call `expired`, until there is none, before `from_outside` and `from_fork`, or at
//! [`Dispatcher::next_deadline`] and bear that.
//!
//! A client whose flow is ended by a timer, or whose fork fails, is told nothing. What it sends afterwards is dropped, since
//! no RST is made in a fork's name: it finds out by its own timers. So does a client to which the fork's RST was lost.
//!
//! # Bounds
//!
//! All memory is allocated by [`Dispatcher::try_new`]. There are at most [`Config::flows`] places: each is of a flow that has a
//! fork, or waits for one, or of a fork that is made in vain. A SYN beyond them is dropped and counted, and its client sends
//! it again. So no sender has more forks made at a time than that; but a sender can keep others out:
//!
//! - With SYNs from addresses that are not its own, at the cost of one SYN for each place, as often as
//!   [`Timers::half_open`] is up.
//! - With addresses of its own, at the cost of a handshake for each place, and then of one packet as often as
//!   [`Timers::abandoned`] is up; and of a new handshake after [`Timers::longest`]. There is no bound for each client.
//! - An embedder that never says that a fork is there, or that it failed, holds the place for ever.
//!
//! Fragments, IPv6, VLAN tags, UDP and ICMP are dropped and counted. Of ICMP that means that a path which takes only
//! smaller packets is not found out ("fragmentation needed"): have the guest use an MTU that all paths have, or probe for
//! it (`net.ipv4.tcp_mtu_probing=1`).
//!
//! Forks of one template begin with the same keys and the same counter. So two of them choose nearly the same sequence
//! numbers for one 5-tuple. That of the client tells their connections apart.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod arp;
mod config;
mod counts;
mod dispatcher;
mod flow;
mod frame;
mod table;

pub use config::{Config, MOST_SLOTS, NoDispatcher, Timers};
pub use counts::{Counts, Dropped, End, Tally};
pub use dispatcher::{Dispatcher, Port, Uplink};
pub use flow::KEPT_BYTES;
pub use table::Flow;

/// The address of a card.
pub type Mac = [u8; 6];

/// An address of IPv4.
pub type Ip = [u8; 4];
