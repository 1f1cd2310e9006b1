//! LPIs and an ITS as the architecture has them (Arm IHI 0069, chapter 5): maps and sets, and no words.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) const VCPUS: usize = 3;
pub(crate) const LPIS: usize = 64;
pub(crate) const DEVICES: u32 = 4;
pub(crate) const EVENT_BITS: u32 = 3;
pub(crate) const FIRST: u32 = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) lpi: usize,
    pub(crate) collection: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Its {
    /// Of each mapped device, how many events it has, and those that are mapped.
    pub(crate) devices: BTreeMap<u32, (u32, BTreeMap<u32, Event>)>,
    pub(crate) collections: BTreeMap<u32, usize>,
    /// The table of properties as the ITS has last read it, an LPI a byte.
    pub(crate) known: BTreeMap<usize, u8>,
    /// Where each LPI is pending.
    pub(crate) pending: BTreeMap<usize, usize>,
    pub(crate) on: BTreeSet<usize>,
}

impl Its {
    pub(crate) fn event(&self, device: u32, event: u32) -> Option<Event> {
        self.devices.get(&device)?.1.get(&event).copied()
    }

    pub(crate) fn map_device(&mut self, device: u32, bits: Option<u32>) {
        if device >= DEVICES {
            return;
        }
        match bits {
            None => drop(self.devices.remove(&device)),
            Some(bits) if bits <= EVENT_BITS => {
                self.devices.insert(device, (1 << bits, BTreeMap::new()));
            }
            Some(_) => {}
        }
    }

    pub(crate) fn map_collection(&mut self, collection: u32, vcpu: Option<usize>) {
        if collection >= 4 {
            return;
        }
        match vcpu {
            Some(vcpu) if vcpu < VCPUS => drop(self.collections.insert(collection, vcpu)),
            Some(_) => {}
            None => drop(self.collections.remove(&collection)),
        }
    }

    pub(crate) fn map_event(&mut self, device: u32, event: u32, to: Event, table: &[u8]) {
        if to.lpi >= LPIS || to.collection >= 4 {
            return;
        }
        if let Some((count, events)) = self.devices.get_mut(&device)
            && event < *count
        {
            events.insert(event, to);
            self.known.insert(to.lpi, table[to.lpi]);
        }
    }

    pub(crate) fn send(&mut self, device: u32, event: u32) {
        let Some(event) = self.event(device, event) else { return };
        if let Some(vcpu) = self.collections.get(&event.collection)
            && self.on.contains(vcpu)
        {
            self.pending.insert(event.lpi, *vcpu);
        }
    }

    pub(crate) fn move_event(&mut self, device: u32, event: u32, collection: u32) {
        let Some(&vcpu) = self.collections.get(&collection) else { return };
        let Some((_, events)) = self.devices.get_mut(&device) else { return };
        let Some(event) = events.get_mut(&event) else { return };
        event.collection = collection;
        let lpi = event.lpi;
        if self.pending.contains_key(&lpi) {
            self.arrive(lpi, vcpu);
        }
    }

    /// It is at another redistributor, or at none if that takes none.
    fn arrive(&mut self, lpi: usize, vcpu: usize) {
        if self.on.contains(&vcpu) {
            self.pending.insert(lpi, vcpu);
        } else {
            self.pending.remove(&lpi);
        }
    }

    pub(crate) fn move_all(&mut self, from: usize, to: usize) {
        if from >= VCPUS || to >= VCPUS {
            return;
        }
        let at: Vec<_> =
            self.pending.iter().filter(|(_, at)| **at == from).map(|(lpi, _)| *lpi).collect();
        for lpi in at {
            self.arrive(lpi, to);
        }
    }

    pub(crate) fn clear(&mut self, device: u32, event: u32) {
        if let Some(event) = self.event(device, event) {
            self.pending.remove(&event.lpi);
        }
    }

    pub(crate) fn discard(&mut self, device: u32, event: u32) {
        self.clear(device, event);
        if let Some((_, events)) = self.devices.get_mut(&device) {
            events.remove(&event);
        }
    }

    pub(crate) fn read_all(&mut self, table: &[u8]) {
        self.known = table.iter().copied().enumerate().collect();
    }

    /// LPIs are turned on, with what the guest's table has as pending.
    pub(crate) fn turn_on(&mut self, vcpu: usize, table: &[u8], pending: u64) {
        if !self.on.insert(vcpu) {
            return;
        }
        self.read_all(table);
        for lpi in (0..LPIS).filter(|lpi| pending >> lpi & 1 != 0) {
            self.pending.insert(lpi, vcpu);
        }
    }

    /// LPIs are turned off. What was pending.
    pub(crate) fn turn_off(&mut self, vcpu: usize) -> u64 {
        self.on.remove(&vcpu);
        let mut bits = 0;
        self.pending.retain(|lpi, at| {
            if *at == vcpu {
                bits |= 1 << *lpi;
            }
            *at != vcpu
        });
        bits
    }

    /// What a vCPU would be given, and with which priority.
    pub(crate) fn deliverable(&self, vcpu: usize) -> BTreeMap<u32, u8> {
        let known = |lpi: &usize| self.known.get(lpi).copied().unwrap_or(0);
        self.pending
            .iter()
            .filter(|(lpi, at)| **at == vcpu && known(lpi) & 1 != 0)
            .map(|(lpi, _)| (FIRST + *lpi as u32, known(lpi) & 0xf8))
            .collect()
    }
}
