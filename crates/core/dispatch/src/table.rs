//! The flows that there are: each in a slot, and found by its client. All memory is there from the beginning.

use alloc::vec::Vec;

use crate::Ip;
use crate::flow::State;

/// A flow, by a number that no other flow of its dispatcher has. That of another dispatcher may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    number: u64,
    slot: u16,
}

impl Flow {
    /// Its number.
    pub const fn number(self) -> u64 {
        self.number
    }
}

/// A client's address and port, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client(u64);

impl Client {
    pub(crate) fn new(ip: Ip, port: u16) -> Self {
        Self(u64::from(u32::from_be_bytes(ip)) << 16 | u64::from(port))
    }
}

/// A slot that is taken.
struct Taken {
    number: u64,
    client: Client,
    state: State,
}

pub(crate) struct Table {
    slots: Vec<Option<Taken>>,
    /// Slots that are free.
    free: Vec<u16>,
    /// The slots of clients, in the order of these.
    by_client: Vec<(Client, u16)>,
    /// The number of the next flow.
    number: u64,
}

impl Table {
    /// With `capacity` slots.
    pub(crate) fn try_new(capacity: u16) -> Option<Self> {
        let count = usize::from(capacity);
        let (mut slots, mut free, mut by_client) = (Vec::new(), Vec::new(), Vec::new());
        slots.try_reserve_exact(count).ok()?;
        free.try_reserve_exact(count).ok()?;
        by_client.try_reserve_exact(count).ok()?;
        // Within what is reserved.
        slots.extend((0..capacity).map(|_| None));
        free.extend((0..capacity).rev());
        Some(Self { slots, free, by_client, number: 1 })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn find(&self, client: Client) -> Option<Flow> {
        let place = self.by_client.binary_search_by_key(&client, |(client, _)| *client).ok()?;
        let (_, slot) = *self.by_client.get(place)?;
        let taken = self.slots.get(usize::from(slot))?.as_ref()?;
        Some(Flow { number: taken.number, slot })
    }

    pub(crate) fn get(&mut self, flow: Flow) -> Option<&mut State> {
        let taken = self.slots.get_mut(usize::from(flow.slot))?.as_mut()?;
        (taken.number == flow.number).then_some(&mut taken.state)
    }

    /// Puts a flow of a client that has none into a free slot, if there is one.
    pub(crate) fn insert(&mut self, client: Client, state: State) -> Option<Flow> {
        let place = self.by_client.binary_search_by_key(&client, |(client, _)| *client).err()?;
        let slot = self.free.pop()?;
        let number = self.number;
        self.number += 1;
        // As many as there are slots have been reserved.
        self.by_client.insert(place, (client, slot));
        self.slots[usize::from(slot)] = Some(Taken { number, client, state });
        Some(Flow { number, slot })
    }

    pub(crate) fn remove(&mut self, flow: Flow) {
        self.unlist(flow);
        let Some(slot) = self.slots.get_mut(usize::from(flow.slot)) else { return };
        if slot.take_if(|taken| taken.number == flow.number).is_some() {
            self.free.push(flow.slot);
        }
    }

    /// Keeps the flow's slot, and has its client begin another.
    pub(crate) fn unlist(&mut self, flow: Flow) {
        let Some(Some(taken)) = self.slots.get(usize::from(flow.slot)) else { return };
        let found = self.by_client.binary_search_by_key(&taken.client, |(client, _)| *client);
        if let Ok(place) = found
            && self.find(taken.client) == Some(flow)
        {
            self.by_client.remove(place);
        }
    }

    /// How many slots there are.
    pub(crate) fn len(&self) -> u16 {
        self.slots.len() as u16
    }

    /// The flow that a slot has.
    pub(crate) fn at(&self, slot: u16) -> Option<(Flow, &State)> {
        let taken = self.slots.get(usize::from(slot))?.as_ref()?;
        Some((Flow { number: taken.number, slot }, &taken.state))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Flow, &State)> {
        (0..self.len()).filter_map(|slot| self.at(slot))
    }
}
