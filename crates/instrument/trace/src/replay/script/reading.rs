//! Reading a trace call by call into a script.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{Act, Change, IoEvent, Part, Script, Step, vm_of};
use crate::life::{MEMORY, overlap};
use crate::record::{Call, Object, Trace};

/// Bits of `kvm_ioeventfd`'s flags, of `kvm_irqfd`'s, and the capability (linux/kvm.h).
const DATAMATCH: u64 = 1;
const PORT: u64 = 1 << 1;
const DEASSIGN: u64 = 1 << 2;
const IRQFD_DEASSIGN: u64 = 1;
const RESAMPLE: u64 = 1 << 1;
const SPLIT_IRQCHIP: u64 = 121;
/// What slots may have that can be had here: a dirty log, and no writes.
const FLAGS: u64 = 3;
/// The size of a memslot whose size was not recorded.
const SIZE: u64 = 2 << 20;
const UNSEEN_SLOTS: &str = "memslots of unrecorded size, with 2 MiB each";
/// The address of a device whose address was not recorded; each further one has its own behind it.
const ADDRESS: u64 = 0xd000_0000;
/// Where Linux keeps its TSS if it is not asked, and QEMU and others have it.
const TSS: u64 = 0xfffb_d000;
/// A pause is no longer, in ticks: a grace period is over by then, and so is what else passes with time.
const LONGEST_PAUSE: u64 = 4;

/// How calls begin that make nothing.
const PLAIN: [&str; 3] = ["KVM_GET_", "KVM_SET_", "KVM_CHECK_"];

/// A script as far as it has been read.
pub(super) struct Reading<'a> {
    trace: &'a Trace,
    vm: usize,
    entry: Option<u64>,
    exit: Option<u64>,
    script: Script,
    /// When the call before ended.
    before: u64,
    /// How often calls of a name are left out.
    left_out: BTreeMap<String, u64>,
    /// How many of what were seen without their arguments.
    unseen: BTreeMap<&'static str, u64>,
    vcpus: BTreeSet<u32>,
    /// Where each memslot is that there is: its guest address and its size.
    slots: BTreeMap<u32, (u64, u64)>,
    events: BTreeSet<IoEvent>,
    lines: BTreeSet<(u64, u32)>,
    has_run: bool,
}

impl<'a> Reading<'a> {
    pub(super) fn new(trace: &'a Trace, vm: usize) -> Self {
        Self {
            trace,
            vm,
            entry: trace.first_entry(),
            exit: trace.last_exit(),
            script: Script::default(),
            before: 0,
            left_out: BTreeMap::new(),
            unseen: BTreeMap::new(),
            vcpus: BTreeSet::new(),
            slots: BTreeMap::new(),
            events: BTreeSet::new(),
            lines: BTreeSet::new(),
            has_run: false,
        }
    }

    /// Takes the call with this number in, or counts it as left out.
    pub(super) fn read(&mut self, number: usize) {
        let call = &self.trace.calls[number];
        let creates = call.name == "KVM_CREATE_VM";
        let is_of_vm = if creates {
            call.argument("vm") as usize == self.vm
        } else {
            vm_of(call.on.as_ref()) == Some(self.vm)
        };
        if !is_of_vm || !call.is_kvm() || self.script.steps.is_empty() && !creates {
            return;
        }
        let part = self.part(call);
        // A run counts where it was seen at all: how it ended is the guest's.
        let act = if call.name == "KVM_RUN" {
            self.run(call)
        } else if call.succeeded() {
            self.act(call, part)
        } else {
            None
        };
        let Some(act) = act else {
            *self.left_out.entry(call.name.clone()).or_default() +=
                u64::from(call.name != "KVM_RUN");
            return;
        };
        let pause = if creates { 0 } else { self.pause(call.at) };
        self.before = self.before.max(call.end());
        self.script.steps.push(Step { act, pause, part, call: number });
    }

    pub(super) fn script(mut self) -> Script {
        let mut ends = self.trace.calls.iter().filter(|call| {
            call.name.starts_with("close") && vm_of(call.on.as_ref()) == Some(self.vm)
        });
        let closed = ends.find(|call| call.at >= self.before).map(|call| call.at);
        let close = closed.or(self.exit).unwrap_or(self.trace.span);
        self.script.before_close = self.pause(close);
        let several = |(name, count): (&String, &u64)| match count {
            0 | 1 => name.clone(),
            count => format!("{name} ({count} times)"),
        };
        let mut left_out: Vec<_> = self.left_out.iter().filter(|(_, count)| **count > 0).collect();
        // What asks, or sets registers, is of the least interest.
        left_out.sort_by_key(|(name, _)| PLAIN.iter().any(|plain| name.starts_with(plain)));
        self.script.left_out.extend(left_out.into_iter().map(several));
        let unseen = self.unseen.iter().map(|(what, count)| format!("{what} ({count})"));
        self.script.stands_in.extend(unseen);
        self.script
    }

    fn part(&self, call: &Call) -> Part {
        match (self.entry, self.exit) {
            (Some(entry), _) if call.at <= entry => Part::Start,
            (Some(_), Some(exit)) if call.at >= exit => Part::Close,
            (Some(_), _) => Part::Meanwhile,
            (None, _) => Part::Start,
        }
    }

    /// What passes before a call that began then.
    fn pause(&self, at: u64) -> u64 {
        let tick = self.trace.tick().unwrap_or(4_000_000);
        at.saturating_sub(self.before).min(LONGEST_PAUSE * tick)
    }

    fn run(&mut self, call: &Call) -> Option<Act> {
        let Some(Object::Vcpu { id, .. }) = call.on else { return None };
        let id = u32::try_from(id).ok()?;
        if self.has_run || !self.vcpus.contains(&id) {
            return None;
        }
        self.has_run = true;
        Some(Act::Run(id))
    }

    fn act(&mut self, call: &Call, part: Part) -> Option<Act> {
        let unseen = call.arguments.is_empty();
        match call.name.as_str() {
            "KVM_CREATE_VM" => Some(Act::CreateVm),
            name if MEMORY.contains(&name) => self.slot(call, part),
            "KVM_SET_TSS_ADDR" => {
                Some(Act::TssAddress(call.arguments.get("address").copied().unwrap_or(TSS)))
            }
            "KVM_SET_IDENTITY_MAP_ADDR" => Some(Act::IdentityMap),
            "KVM_CREATE_IRQCHIP" => Some(Act::Irqchip),
            "KVM_ENABLE_CAP" if call.argument("cap") == SPLIT_IRQCHIP => Some(Act::SplitIrqchip),
            "KVM_CREATE_PIT" | "KVM_CREATE_PIT2" => Some(Act::Pit),
            "KVM_SET_GSI_ROUTING" => {
                self.note("interrupt routing tables, with other routes of the same number");
                Some(Act::Routing(call.argument("routes")))
            }
            "KVM_REGISTER_COALESCED_MMIO" | "KVM_UNREGISTER_COALESCED_MMIO" if !unseen => {
                let is_there = call.name.starts_with("KVM_REG");
                let size = call.argument("size") as u32;
                Some(Act::Coalesced { address: call.argument("address"), size, is_there })
            }
            "KVM_IOEVENTFD" => self.ioeventfd(call, part),
            "KVM_IRQFD" => self.irqfd(call, part),
            "KVM_CREATE_VCPU" => {
                let id = u32::try_from(call.argument("id")).ok()?;
                self.vcpus.insert(id).then_some(Act::Vcpu(id))
            }
            _ => None,
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.unseen.entry(what).or_default() += 1;
    }

    fn slot(&mut self, call: &Call, part: Part) -> Option<Act> {
        if call.arguments.is_empty() {
            // Later it may be one that is taken away.
            if part != Part::Start {
                return None;
            }
            return Some(self.slot_of_unseen_size());
        }
        let (slot, size) = (call.argument("slot") as u32, call.argument("size"));
        if size == 0 {
            return self.slots.remove(&slot).map(|_| Act::DeleteSlot { slot });
        }
        let (guest, flags) = (call.argument("guest"), call.argument("flags"));
        if flags & !FLAGS != 0 {
            return None;
        }
        // The program had deleted what is in the way, in a call whose arguments were not recorded.
        let is_in_the_way = |(other, range): (&u32, &(u64, u64))| {
            if *other == slot { range.1 != size } else { overlap(*range, (guest, size)) }
        };
        if self.slots.iter().any(is_in_the_way) {
            self.note("memslots in place of others whose deletion was not recorded, left out");
            return None;
        }
        self.slots.insert(slot, (guest, size));
        Some(Act::Slot { slot, guest, size, flags: flags as u32 })
    }

    /// A number and a place that none of the program's has, as far as these were seen; the first where guests begin, if
    /// none was seen.
    fn slot_of_unseen_size(&mut self) -> Act {
        let seen = || self.trace.calls.iter().filter(|call| MEMORY.contains(&call.name.as_str()));
        let number = seen().map(|call| call.argument("slot") as u32 & 0xFFFF).max().unwrap_or(0);
        let end = seen().map(|call| call.argument("guest").saturating_add(call.argument("size")));
        let behind = end.max().unwrap_or(0).checked_next_multiple_of(1 << 32).unwrap_or(0);
        // Where a guest's code is; it has room there.
        let is_low = |call: &Call| call.argument("size") > 0 && call.argument("guest") < SIZE;
        let first = if seen().any(is_low) { behind } else { 0 };
        let before = self.unseen.get(UNSEEN_SLOTS).copied().unwrap_or(0);
        self.note(UNSEEN_SLOTS);
        let slot = number + 1 + before as u32;
        let guest = if before == 0 { first } else { behind.saturating_add(before * SIZE) };
        self.slots.insert(slot, (guest, SIZE));
        Act::Slot { slot, guest, size: SIZE, flags: 0 }
    }

    fn ioeventfd(&mut self, call: &Call, part: Part) -> Option<Act> {
        if call.arguments.is_empty() {
            if part != Part::Start {
                return None;
            }
            self.note("ioeventfds of unrecorded address, with others of 4 bytes");
            let address = ADDRESS + 8 * self.events.len() as u64;
            let event =
                IoEvent { address, length: 4, value: None, is_port: false, eventfd: u64::MAX };
            self.events.insert(event);
            return Some(Act::IoEvent(event, Change::Comes));
        }
        let flags = call.argument("flags");
        let event = IoEvent {
            address: call.argument("address"),
            length: call.argument("length") as u32,
            value: (flags & DATAMATCH != 0).then(|| call.argument("datamatch")),
            is_port: flags & PORT != 0,
            eventfd: call.argument("eventfd"),
        };
        if flags & DEASSIGN != 0 {
            return self.events.remove(&event).then_some(Act::IoEvent(event, Change::Goes));
        }
        if flags & !(DATAMATCH | PORT) != 0 {
            return None;
        }
        self.events.insert(event).then_some(Act::IoEvent(event, Change::Comes))
    }

    fn irqfd(&mut self, call: &Call, part: Part) -> Option<Act> {
        if call.arguments.is_empty() {
            if part != Part::Start {
                return None;
            }
            self.note("irqfds of unrecorded line, with others");
            let (eventfd, gsi) = (u64::MAX - self.lines.len() as u64, 5);
            self.lines.insert((eventfd, gsi));
            return Some(Act::IrqFd { eventfd, gsi, change: Change::Comes });
        }
        let flags = call.argument("flags");
        let (eventfd, gsi) = (call.argument("eventfd"), call.argument("gsi") as u32);
        if flags & IRQFD_DEASSIGN != 0 {
            let was_there = self.lines.remove(&(eventfd, gsi));
            return was_there.then_some(Act::IrqFd { eventfd, gsi, change: Change::Goes });
        }
        if flags & RESAMPLE != 0 {
            self.note("irqfds, without their resample events");
        }
        let is_new = self.lines.insert((eventfd, gsi));
        is_new.then_some(Act::IrqFd { eventfd, gsi, change: Change::Comes })
    }
}
