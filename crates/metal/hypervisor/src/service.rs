//! A service: forks of a frozen VM, one for each TCP connection, from its SYN until everything that the fork had is free.
//!
//! The [`Dispatcher`] knows connections, its *flows*, and which frame is whose. This adds what it does not know: that a
//! fork is a VM, which takes a while to be made, has a card only then, and takes a while to be destroyed.
//!
//! **Who calls.** The embedder has a lock around it, and holds that for a decision, not while it copies a frame. A thread of
//! the service asks what to do [`next`](Service::next): it makes forks, ends them, and says when they are
//! [gone](Service::gone). Whoever has a frame from outside gives it ([`Service::from_outside`]), and is told whose card it is
//! for. The thread of a fork's devices brings the card ([`Service::seat`]), gives what the fork sends
//! ([`Service::from_fork`]), and takes the card away ([`Service::leave`]).
//!
//! **Stages.** A fork is *asked* for by a SYN. It is *made* from the moment on at which the thread has taken it up, until it
//! is gone. In between it may be *over*: its flow has ended, and the thread is to end it. One that is over before it was
//! taken up is forgotten, and its place is free; one that is over before its card came has its place until that comes, or
//! the fork is gone. Each fork that was taken up is gone once: made in vain ([`Service::unmade`]), ended by the thread,
//! or ended by itself.
//!
//! **Bounds.** So many are made at a time, those that are being destroyed included. Beyond that a SYN waits until one is gone,
//! or until its flow has been half open for too long. There are as many flows as the dispatcher allows.

mod offer;
mod times;

use alloc::vec::Vec;

use mayfly_dispatch::{Config, Counts, Dispatcher, Flow, KEPT_BYTES, NoDispatcher, Port, Uplink};

pub use mayfly_dispatch::End;
pub use offer::Offer;
pub use times::{Mean, Phase, Times};

use times::Clock;

/// Forks of a frozen VM, whose cards are `C`.
#[derive(Debug)]
pub struct Service<C> {
    dispatcher: Dispatcher,
    /// In the order of the numbers of their flows.
    forks: Vec<Fork<C>>,
    most: usize,
    is_closed: bool,
    made: u64,
    gone: u64,
    failed: u64,
    times: Times,
}

#[derive(Debug)]
struct Fork<C> {
    flow: Flow,
    stage: Stage,
    card: Option<C>,
    clock: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Made,
    /// Its flow has ended. Whether its thread was told to end it.
    Over(bool),
}

/// A frame of the dispatcher's own: a SYN that was kept, or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    bytes: [u8; KEPT_BYTES],
    len: usize,
}

impl Kept {
    fn new(frame: &[u8]) -> Self {
        let mut bytes = [0; KEPT_BYTES];
        let len = frame.len().min(KEPT_BYTES);
        bytes[..len].copy_from_slice(&frame[..len]);
        Self { bytes, len }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// What is to be done with a frame from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outside<C> {
    /// Nothing.
    Nothing,
    /// The thread of the service is to look what is [next](Service::next).
    Look,
    /// It is for this card.
    Give(C),
    /// It is for this card, if there is one, and then the flow is [over](Service::over).
    GiveLast(Option<C>, Flow),
    /// This is to be sent out.
    Answer(Kept),
}

/// What is to be done with a frame of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing.
    Nothing,
    /// It is to be sent out.
    Send,
    /// It is to be sent out, and then the flow is [over](Service::over).
    SendLast,
    /// This is for the fork's card.
    Answer(Kept),
}

/// What the thread of the service does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It makes a fork for this flow, and says so if it cannot ([`Service::unmade`]).
    Make(Flow),
    /// It ends the fork of this flow, and says when that is [gone](Service::gone).
    End(Flow),
    /// It waits until it is to look, or until this moment, in nanoseconds.
    Wait(Option<u64>),
}

/// What became of the forks of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forks {
    /// Those that were made, or begun to be.
    pub made: u64,
    /// Those of them of which everything is free.
    pub gone: u64,
    /// Those of them that could not be made.
    pub failed: u64,
    /// SYNs for which none is made yet.
    pub asked: u64,
}

impl<C: Clone> Service<C> {
    /// One without forks, which makes `most` at a time. All memory that it ever needs is allocated here.
    ///
    /// # Errors
    ///
    /// [`NoDispatcher`].
    pub fn try_new(config: Config, most: u16) -> Result<Self, NoDispatcher> {
        let (flows, most) = (usize::from(config.flows), usize::from(most));
        let dispatcher = Dispatcher::try_new(config)?;
        let mut forks = Vec::new();
        // Those that are asked for are of flows that are there; the others are made.
        forks.try_reserve_exact(flows + most).map_err(|_| NoDispatcher::Memory)?;
        let (made, gone, failed, times) = (0, 0, 0, Times::default());
        Ok(Self { dispatcher, forks, most, is_closed: false, made, gone, failed, times })
    }

    /// The most bytes that [`Service::try_new`] allocates.
    pub const fn bytes(config: &Config, most: u16) -> usize {
        const FLOW: usize = 512;
        let (flows, remembered) = (config.flows as usize, config.remembered as usize);
        FLOW * (flows + remembered) + (flows + most as usize) * size_of::<Fork<C>>()
    }

    fn place(&self, flow: Flow) -> Option<usize> {
        self.forks.binary_search_by_key(&flow.number(), |fork| fork.flow.number()).ok()
    }

    fn fork(&mut self, flow: Flow) -> Option<&mut Fork<C>> {
        let place = self.place(flow)?;
        self.forks.get_mut(place)
    }

    fn forget(&mut self, flow: Flow) -> Option<Fork<C>> {
        Some(self.forks.remove(self.place(flow)?))
    }

    /// A frame has come from outside at `now`, in nanoseconds.
    pub fn from_outside(&mut self, frame: &[u8], now: u64) -> Outside<C> {
        if self.is_closed {
            return Outside::Nothing;
        }
        match self.dispatcher.from_outside(frame, now) {
            Uplink::Fork(flow) => {
                // There is room: each that is asked for, and each that is made, is of one of so many flows.
                let clock = Clock::begin(now);
                self.forks.push(Fork { flow, stage: Stage::Asked, card: None, clock });
                Outside::Look
            }
            Uplink::Cancelled(flow) => {
                self.over(flow, now);
                Outside::Look
            }
            Uplink::Deliver(flow) => self.card(flow).map_or(Outside::Nothing, Outside::Give),
            Uplink::DeliverLast(flow) => Outside::GiveLast(self.card(flow), flow),
            Uplink::Answer(frame) => Outside::Answer(Kept::new(frame)),
            Uplink::Kept | Uplink::Dropped(_) => Outside::Nothing,
        }
    }

    fn card(&mut self, flow: Flow) -> Option<C> {
        self.fork(flow)?.card.clone()
    }

    /// The fork of a flow has sent a frame, at `now`, in nanoseconds.
    pub fn from_fork(&mut self, flow: Flow, frame: &[u8], now: u64) -> Sent {
        let sent = match self.dispatcher.from_fork(flow, frame, now) {
            Port::Send => Sent::Send,
            Port::SendLast => Sent::SendLast,
            Port::Answer(frame) => return Sent::Answer(Kept::new(frame)),
            Port::Dropped(_) => return Sent::Nothing,
        };
        if let Some(fork) = self.fork(flow) {
            fork.clock.comes_to(Phase::Answers, now);
        }
        sent
    }

    /// A flow has ended. The thread of the service is to look.
    pub fn over(&mut self, flow: Flow, now: u64) {
        let Some(fork) = self.fork(flow) else { return };
        fork.clock.comes_to(Phase::Over, now);
        match fork.stage {
            Stage::Asked => {
                // None is being made: so the dispatcher need not wait for it.
                self.dispatcher.failed(flow);
                self.forget(flow);
            }
            Stage::Made => fork.stage = Stage::Over(false),
            Stage::Over(_) => {}
        }
    }

    /// What the thread of the service does next, at `now`, in nanoseconds. It is called until it says to wait.
    pub fn next(&mut self, now: u64) -> Next {
        // One at a time: the embedder may let others have the lock in between.
        if let Some(flow) = self.dispatcher.expired(now) {
            self.over(flow, now);
        }
        if let Some(fork) = self.forks.iter_mut().find(|fork| fork.stage == Stage::Over(false)) {
            fork.stage = Stage::Over(true);
            return Next::End(fork.flow);
        }
        if self.alive() < self.most
            && let Some(fork) = self.forks.iter_mut().find(|fork| fork.stage == Stage::Asked)
        {
            fork.stage = Stage::Made;
            fork.clock.comes_to(Phase::Made, now);
            self.made += 1;
            return Next::Make(fork.flow);
        }
        Next::Wait(self.dispatcher.next_deadline())
    }

    /// How many forks are made, and not gone.
    pub fn alive(&self) -> usize {
        self.forks.iter().filter(|fork| fork.stage != Stage::Asked).count()
    }

    /// The fork of a flow could not be made. Its SYN is forgotten, and its client sends it again.
    pub fn unmade(&mut self, flow: Flow) {
        self.dispatcher.failed(flow);
        if self.forget(flow).is_some() {
            self.failed += 1;
            self.gone += 1;
        }
    }

    /// Everything is free that the fork of a flow had, at `now`, in nanoseconds: it was ended, or has ended by itself.
    pub fn gone(&mut self, flow: Flow, now: u64) {
        self.dispatcher.failed(flow);
        if let Some(mut fork) = self.forget(flow) {
            self.gone += 1;
            fork.clock.comes_to(Phase::Over, now);
            self.times.add(&fork.clock, now);
        }
    }

    /// The card of a flow's fork is there, at `now`, in nanoseconds. Returns the SYN, which it is to be given first; or
    /// nothing, if nobody waits for the fork any more.
    pub fn seat(&mut self, flow: Flow, card: C, now: u64) -> Option<Kept> {
        let place = self.place(flow)?;
        let syn = Kept::new(self.dispatcher.forked(flow)?);
        let fork = self.forks.get_mut(place)?;
        fork.clock.comes_to(Phase::Seated, now);
        fork.card = Some(card);
        Some(syn)
    }

    /// The card of a flow's fork goes. It is returned: others may be giving it a frame.
    pub fn leave(&mut self, flow: Flow) -> Option<C> {
        self.fork(flow)?.card.take()
    }

    /// All flows end, and none begins any more. The thread of the service is to look.
    pub fn close(&mut self, now: u64) {
        self.is_closed = true;
        let flows = |service: &Self, at: usize| service.forks.get(at).map(|fork| fork.flow);
        let mut at = 0;
        while let Some(flow) = flows(self, at) {
            // Its fork may be in the making. No other is asked for, so that its place is free too early for nobody.
            self.dispatcher.failed(flow);
            self.over(flow, now);
            // One that was only asked for is not there any more.
            at += usize::from(flows(self, at) == Some(flow));
        }
    }

    /// Whether it is [closed](Service::close), and has no forks any more.
    pub fn is_over(&self) -> bool {
        self.is_closed && self.forks.is_empty()
    }

    /// What became of its forks.
    pub fn forks(&self) -> Forks {
        let asked = self.forks.len() - self.alive();
        Forks { made: self.made, gone: self.gone, failed: self.failed, asked: asked as u64 }
    }

    /// What became of frames and flows.
    pub const fn counts(&self) -> &Counts {
        self.dispatcher.counts()
    }

    /// How long forks took.
    pub const fn times(&self) -> &Times {
        &self.times
    }
}
