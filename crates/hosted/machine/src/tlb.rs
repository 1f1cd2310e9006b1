//! The TLBs of the machine's CPUs, and how one CPU makes all others forget a translation.
//!
//! # The protocol
//!
//! A CPU's translations are its own; no other thread touches them. The CPU looks into its *mailbox* when it enters the
//! guest, and between the guest's instructions ([`InGuest::poll`]). Between two looks it uses what it remembers, and
//! remembers what it walks. It walks only in the guest. So a translation that it uses between two looks was remembered,
//! or walked, after the CPU had forgotten everything that the first look found.
//!
//! **Posting** ([`Tlb::issue`](mayfly_platform::tlb::Tlb::issue)). The issuer has changed the tables. It puts the request
//! into the mailbox of every CPU that may hold the VMID, and counts it there (`posted`). It never waits: if the mailbox is
//! full, or another thread is using it, the issuer marks *everything* instead.
//!
//! **Taking.** The CPU loads `posted`, then takes the requests, then the mark for everything. If another thread is using
//! the mailbox, the CPU forgets everything rather than wait. All posts that it loaded are then taken, because an issuer
//! counts a post after it has put it. The CPU acknowledges as many.
//!
//! **Completing** ([`Tlb::complete`](mayfly_platform::tlb::Tlb::complete)) needs no names for requests. Whatever the caller
//! posted has been counted. So the caller loads each CPU's `posted`, and waits until the CPU has acknowledged so many, or
//! is outside the guest. (At most it also waits for what other threads had posted by then.) It spins a little, and then
//! sleeps on the CPU's `state`. This one word has both: in the guest or not, and the count of acknowledged posts.
//!
//! # Barriers
//!
//! - A CPU says that it is in the guest, and under which VMID; **\[enter\]** `fence(SeqCst)`; loads `posted`, and
//!   walks.
//! - An issuer changes the tables; **\[issue\]** `fence(SeqCst)`; loads which VMIDs the CPU may hold. Store buffering
//!   with \[enter\]: either the issuer finds the VMID, and posts, or the CPU walks the changed tables. (A CPU drops
//!   VMIDs from what it may hold only when it has forgotten everything.)
//! - An issuer posts; **\[complete\]** `fence(SeqCst)`; loads `state`. Store buffering with \[enter\]: either the
//!   issuer finds the CPU in the guest, and waits, or the CPU finds the post before it uses anything.
//! - A thread that is about to sleep counts itself; **\[sleep\]** `fence(SeqCst)`; loads `state`. A CPU stores `state`;
//!   **\[tell\]** `fence(SeqCst)`; loads whether any thread sleeps. Store buffering: either the CPU wakes the sleeper, or
//!   the sleeper finds the new state. Between finding the old state and sleeping,
//!   [`Platform::wait`](mayfly_platform::Platform::wait) compares.
//! - Posting releases, by the lock around the requests and by the swap that leaves the mark; taking acquires. So a CPU
//!   that has forgotten on account of a post walks what its issuer wrote, even if it took the post before it was
//!   counted. (It would not if the mark were stored: a thread that takes the last store is not ordered after the stores
//!   before.)
//! - Acknowledging and leaving are releases; completing acquires them. Accesses that used what was invalidated have
//!   been made when completing returns, and what happens to their frames afterwards happens after them.
//!
//! A CPU that is not on the list when a request is issued was put there afterwards, and the list's lock orders its
//! walks after the issuer's change. A CPU that was taken off the list is outside the guest for good.

mod cache;
mod counts;
mod cpu;
mod early;
mod guest;
mod late;
mod mailbox;
mod rigour;
mod shared;
mod tlbs;

pub use crate::processors::CPUS;
pub use counts::{CpuCounts, TlbCounts};
pub use cpu::CpuTlb;
pub use guest::{InGuest, Translated};
pub(crate) use rigour::may_walk_late;
pub use rigour::{LeftOut, Rigour};
pub use tlbs::Tlbs;
