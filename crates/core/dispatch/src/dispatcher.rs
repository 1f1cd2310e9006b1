//! The dispatcher: which fork a frame from outside goes to, and which frames of a fork go out.

use crate::arp::{self, ANSWER};
use crate::config::{Config, NoDispatcher, Timers};
use crate::counts::{Counts, Dropped, End};
use crate::flow::{Stage, State};
use crate::frame::{Frame, Segment, is_client, is_one};
use crate::table::{Client, Flow, Table};

/// What is to be done with a frame from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink<'a> {
    /// Make a fork for this flow, and then call [`Dispatcher::forked`], or [`Dispatcher::failed`].
    Fork(Flow),
    /// Nothing: it is the SYN that is kept, or has taken its place.
    Kept,
    /// Give it to the flow's fork.
    Deliver(Flow),
    /// Give it to the flow's fork, and then destroy the fork. The flow is over.
    DeliverLast(Flow),
    /// The flow is over before its fork was there. It has its place until [`Dispatcher::forked`] is called, which says that
    /// nobody waits for the fork; or [`Dispatcher::failed`].
    Cancelled(Flow),
    /// Send these bytes out.
    Answer(&'a [u8]),
    /// Nothing. It is counted.
    Dropped(Dropped),
}

/// What is to be done with a frame of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port<'a> {
    /// Send it out.
    Send,
    /// Send it out, and then destroy the fork. The flow is over.
    SendLast,
    /// Give these bytes to the fork.
    Answer(&'a [u8]),
    /// Nothing. It is counted.
    Dropped(Dropped),
}

/// What stands between an uplink and the forks of one template.
pub struct Dispatcher {
    config: Config,
    table: Table,
    /// Flows that have a fork, or wait for one, or have ended while it was being made.
    live: u16,
    /// The latest time that was given.
    now: u64,
    /// No flow ends by a timer before.
    earliest: u64,
    counts: Counts,
    answer: [u8; ANSWER],
}

impl core::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Dispatcher")
            .field("config", &self.config)
            .field("live", &self.live)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Without flows. All memory that it ever needs is allocated here: about 250 bytes a flow.
    ///
    /// # Errors
    ///
    /// [`NoDispatcher`].
    pub fn try_new(config: Config) -> Result<Self, NoDispatcher> {
        let slots = config.slots()?;
        Ok(Self {
            config,
            table: Table::try_new(slots).ok_or(NoDispatcher::Memory)?,
            live: 0,
            now: 0,
            earliest: u64::MAX,
            counts: Counts::NONE,
            answer: [0; ANSWER],
        })
    }

    /// What became of frames and flows.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many flows have a fork, or wait for one; with those that have ended while their fork was being made.
    pub const fn live(&self) -> u16 {
        self.live
    }

    /// A frame has come from outside at `now`, in nanoseconds.
    pub fn from_outside(&mut self, frame: &[u8], now: u64) -> Uplink<'_> {
        self.pass(now);
        match Frame::parse(frame) {
            Err(why) => self.drop(why),
            Ok(Frame::Arp { from, to, packet }) => {
                let own = self.config.mac;
                match arp::request((from, to), &packet, Some(own)) {
                    Ok(request) if self.asks_for_template(&request) => {
                        self.counts.answered += 1;
                        arp::answer(&request, own, &mut self.answer);
                        Uplink::Answer(&self.answer)
                    }
                    _ => self.drop(Dropped::Arp),
                }
            }
            Ok(Frame::Tcp(segment)) => match self.check(&segment) {
                Err(why) => self.drop(why),
                Ok(client) => self.dispatch(client, &segment),
            },
        }
    }

    /// The flow's fork is there. Returns the SYN that is to be given to it first; or nothing, if nobody waits for the fork
    /// any more: then it is to be destroyed.
    pub fn forked(&mut self, flow: Flow) -> Option<&[u8]> {
        if self.leave_in_vain(flow) {
            self.counts.in_vain += 1;
            return None;
        }
        let state = self.table.get(flow).filter(|state| state.stage == Stage::Asked)?;
        state.stage = Stage::Opening;
        self.counts.forked += 1;
        Some(state.kept())
    }

    /// There is no fork for the flow, and none is being made any more; or its fork has ended by itself. Returns whether
    /// that has ended the flow: one that is over, or was over before its fork was there, ends no second time.
    pub fn failed(&mut self, flow: Flow) -> bool {
        if self.leave_in_vain(flow) || !self.table.get(flow).is_some_and(|state| state.is_live()) {
            return false;
        }
        self.live -= 1;
        self.counts.ended.count(End::Failed);
        self.table.remove(flow);
        true
    }

    /// Gives the place of a flow free that has ended while its fork was being made. Returns whether it is one.
    fn leave_in_vain(&mut self, flow: Flow) -> bool {
        let is_vain = self.table.get(flow).is_some_and(|state| state.stage == Stage::Vain);
        if is_vain {
            self.live -= 1;
            self.table.remove(flow);
        }
        is_vain
    }

    /// The fork of a flow has sent a frame, at `now`, in nanoseconds. The frame is as it goes out: nobody changes it any
    /// more, and nothing is left to be done to it but checksums.
    pub fn from_fork(&mut self, flow: Flow, frame: &[u8], now: u64) -> Port<'_> {
        self.pass(now);
        let Some(state) = self.table.get(flow).filter(|state| state.is_live()) else {
            return self.refuse(Dropped::Unknown);
        };
        if state.stage == Stage::Asked {
            return self.refuse(Dropped::Early);
        }
        let Config { mac, ip, port, .. } = self.config;
        let hop = state.mac;
        match Frame::parse(frame) {
            Err(why) => self.refuse(why),
            Ok(Frame::Arp { from, to, packet }) => match arp::request((from, to), &packet, None) {
                Ok(request) if (request.mac, request.ip) == (mac, ip) && request.wants != ip => {
                    self.counts.told += 1;
                    arp::answer(&request, hop, &mut self.answer);
                    Port::Answer(&self.answer)
                }
                _ => self.refuse(Dropped::Arp),
            },
            Ok(Frame::Tcp(segment)) => {
                let (target, target_port) = segment.target;
                let is_its = (segment.from, segment.to) == (mac, hop)
                    && segment.source == (ip, port)
                    // Which may have a route in them, or an address.
                    && !segment.has_ip_options()
                    && self.table.find(Client::new(target, target_port)) == Some(flow)
                    // Beyond its packet, a frame is filled up to the shortest that there is.
                    && frame.len() <= segment.frame.len().max(ANSWER);
                if is_its { self.send(flow, &segment) } else { self.refuse(Dropped::Foreign) }
            }
        }
    }

    /// A flow that has ended by a timer at `now`, in nanoseconds, if there is one: its fork is to be destroyed. If the fork
    /// is not there yet, it is as after [`Uplink::Cancelled`]. Call it until there is none.
    pub fn expired(&mut self, now: u64) -> Option<Flow> {
        self.pass(now);
        if self.earliest > self.now {
            return None;
        }
        // Each slot is looked at once: the embedder has a lock around this.
        let mut earliest = u64::MAX;
        for slot in 0..self.table.len() {
            let Some((flow, state)) = self.table.at(slot) else { continue };
            if state.deadline > self.now {
                earliest = earliest.min(state.deadline);
                continue;
            }
            let longest = state.begun.saturating_add(self.config.timers.longest);
            let end = match state.stage {
                Stage::Vain => continue,
                Stage::Over => {
                    self.table.remove(flow);
                    continue;
                }
                Stage::Asked | Stage::Opening => End::HalfOpen,
                Stage::Open if state.deadline >= longest => End::TooLong,
                Stage::Open => End::Abandoned,
            };
            // There may be more, so that `earliest` stays.
            self.end(flow, end);
            return Some(flow);
        }
        self.earliest = earliest;
        None
    }

    /// When to call [`Self::expired`], in nanoseconds: there is nothing that ends before.
    pub const fn next_deadline(&self) -> Option<u64> {
        if self.earliest == u64::MAX { None } else { Some(self.earliest) }
    }

    /// Time never goes back.
    fn pass(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn drop(&mut self, why: Dropped) -> Uplink<'static> {
        self.counts.dropped.count(why);
        Uplink::Dropped(why)
    }

    fn refuse(&mut self, why: Dropped) -> Port<'static> {
        self.counts.refused.count(why);
        Port::Dropped(why)
    }

    fn asks_for_template(&self, request: &arp::Request) -> bool {
        let Config { mac, ip, .. } = self.config;
        is_one(request.mac) && request.mac != mac && request.ip != ip && request.wants == ip
    }

    /// Whose a segment from outside is, if it is one for the template.
    fn check(&self, segment: &Segment<'_>) -> Result<Client, Dropped> {
        let Config { mac, ip, port, .. } = self.config;
        if segment.to != mac || segment.target != (ip, port) {
            return Err(Dropped::Foreign);
        }
        let (source, source_port) = segment.source;
        let is_from_outside = is_one(segment.from) && segment.from != mac;
        if !is_from_outside || !is_client(source) || source == ip || source_port == 0 {
            return Err(Dropped::Source);
        }
        if !segment.is_right() {
            return Err(Dropped::Checksum);
        }
        Ok(Client::new(source, source_port))
    }

    fn dispatch(&mut self, client: Client, segment: &Segment<'_>) -> Uplink<'_> {
        let Some(flow) = self.table.find(client) else {
            return match self.begin(client, segment) {
                Ok(flow) => Uplink::Fork(flow),
                Err(why) => self.drop(why),
            };
        };
        match self.table.get(flow).map(|state| state.stage) {
            Some(Stage::Asked) => self.wait(flow, segment),
            Some(Stage::Opening | Stage::Open) => self.deliver(flow, segment),
            _ => self.remember(flow, client, segment),
        }
    }

    /// A segment of no flow.
    fn begin(&mut self, client: Client, segment: &Segment<'_>) -> Result<Flow, Dropped> {
        begins(segment).map_err(|why| why.unwrap_or(Dropped::Unknown))?;
        if self.live == self.config.flows {
            return Err(Dropped::Full);
        }
        let Timers { half_open, longest, .. } = self.config.timers;
        let deadline = self.now.saturating_add(half_open.min(longest));
        let state = State::new(segment, self.now, deadline);
        if self.table.is_full() {
            // There are less flows with forks than there are slots.
            let over = self.table.iter().filter(|(_, state)| state.stage == Stage::Over);
            let first = over.min_by_key(|(_, state)| state.deadline).map(|(flow, _)| flow);
            self.table.remove(first.ok_or(Dropped::Full)?);
        }
        let flow = self.table.insert(client, state).ok_or(Dropped::Full)?;
        self.earliest = self.earliest.min(deadline);
        self.live += 1;
        self.counts.asked += 1;
        Ok(flow)
    }

    /// A segment of a flow whose fork is not there yet.
    fn wait(&mut self, flow: Flow, segment: &Segment<'_>) -> Uplink<'_> {
        let Some(state) = self.table.get(flow) else { return self.drop(Dropped::Unknown) };
        if segment.rst && state.resets(segment) {
            self.counts.delivered += 1;
            self.end(flow, End::Cancelled);
            return Uplink::Cancelled(flow);
        }
        match begins(segment) {
            Ok(()) => {
                state.begin(segment);
                self.counts.repeated += 1;
                Uplink::Kept
            }
            Err(why) => self.drop(why.unwrap_or(Dropped::Early)),
        }
    }

    /// A segment for a fork.
    fn deliver(&mut self, flow: Flow, segment: &Segment<'_>) -> Uplink<'_> {
        let (now, timers) = (self.now, self.config.timers);
        let Some(state) = self.table.get(flow) else { return self.drop(Dropped::Unknown) };
        let end = if segment.rst {
            state.resets(segment).then_some(End::Reset)
        } else {
            if !segment.syn && state.hear_client(segment) {
                let longest = state.begun.saturating_add(timers.longest);
                state.stage = Stage::Open;
                state.deadline = now.saturating_add(timers.abandoned).min(longest);
                self.earliest = self.earliest.min(state.deadline);
            }
            state.end()
        };
        self.counts.delivered += 1;
        match end {
            Some(end) => {
                self.end(flow, end);
                Uplink::DeliverLast(flow)
            }
            None => Uplink::Deliver(flow),
        }
    }

    /// A segment of a flow that is remembered.
    fn remember(&mut self, flow: Flow, client: Client, segment: &Segment<'_>) -> Uplink<'_> {
        let Some(state) = self.table.get(flow) else { return self.drop(Dropped::Unknown) };
        let (is_newer, is_last_again) = (state.is_before(segment), state.is_last_again(segment));
        match begins(segment) {
            Ok(()) if is_newer && self.live < self.config.flows => {
                self.table.remove(flow);
                match self.begin(client, segment) {
                    Ok(flow) => Uplink::Fork(flow),
                    Err(why) => self.drop(why),
                }
            }
            Ok(()) if is_newer => self.drop(Dropped::Full),
            Err(None) if is_last_again => {
                self.counts.answered += 1;
                Uplink::Answer(self.table.get(flow).map_or(&[], |state| state.kept()))
            }
            Ok(()) | Err(None) => self.drop(Dropped::Late),
            Err(Some(why)) => self.drop(why),
        }
    }

    /// A segment of a flow's fork.
    fn send(&mut self, flow: Flow, segment: &Segment<'_>) -> Port<'_> {
        let Some(state) = self.table.get(flow) else { return self.refuse(Dropped::Unknown) };
        if segment.syn && (segment.ack.is_none() || segment.fin || segment.rst) {
            return self.refuse(Dropped::Early);
        }
        let end = if segment.rst {
            state.refuses(segment).then_some(End::Refused)
        } else {
            state.hear_fork(segment);
            state.end()
        };
        self.counts.sent += 1;
        match end {
            Some(end) => {
                self.end(flow, end);
                Port::SendLast
            }
            None => Port::Send,
        }
    }

    /// A flow with a fork, or one that waits for it, ends.
    fn end(&mut self, flow: Flow, end: End) {
        self.counts.ended.count(end);
        if let Some(state) = self.table.get(flow).filter(|state| state.stage == Stage::Asked) {
            // Its fork is being made. A place that was free at once would have a SYN and a RST, again and again, make forks
            // without bound.
            (state.stage, state.deadline) = (Stage::Vain, u64::MAX);
            return self.table.unlist(flow);
        }
        self.live -= 1;
        let deadline = self.now.saturating_add(self.config.timers.remembered);
        match self.table.get(flow).filter(|_| end == End::Closed && self.config.remembered > 0) {
            Some(state) => {
                state.stage = Stage::Over;
                state.deadline = deadline;
                self.earliest = self.earliest.min(deadline);
            }
            None => self.table.remove(flow),
        }
    }
}

/// Whether a segment begins a flow; else what is wrong with it, if it is a SYN.
fn begins(segment: &Segment<'_>) -> Result<(), Option<Dropped>> {
    let is_syn = segment.syn && !segment.fin && !segment.rst && segment.ack.is_none();
    match (is_syn, segment.data) {
        (true, 0) => Ok(()),
        (true, _) => Err(Some(Dropped::Data)),
        (false, _) => Err(None),
    }
}
