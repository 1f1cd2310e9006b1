//! The APICs as the manuals have them: sets of vectors, messages that arrive at once, timers that count each tick. No
//! words, no notices, no mailboxes.

use std::collections::BTreeSet;

use mayfly_vapic::{Event, Next};

pub(crate) const VCPUS: usize = 4;
pub(crate) const TSC_PER_TICK: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Page,
    Msrs,
}

/// A local APIC.
#[derive(Clone, Debug)]
pub(crate) struct Apic {
    pub(crate) id: u32,
    pub(crate) mode: Mode,
    pub(crate) page: u64,
    pub(crate) tpr: u8,
    pub(crate) svr: u32,
    pub(crate) ldr: u8,
    pub(crate) dfr: u8,
    pub(crate) irr: BTreeSet<u8>,
    pub(crate) isr: BTreeSet<u8>,
    pub(crate) tmr: BTreeSet<u8>,
    pub(crate) icr: [u32; 2],
    pub(crate) lvt: [u32; 6],
    pub(crate) esr: u32,
    pub(crate) errors: u32,
    pub(crate) waits: bool,
    /// What came, and was not looked at.
    pub(crate) events: Vec<Event>,
    pub(crate) illegal: bool,
    pub(crate) divide: u32,
    pub(crate) initial: u32,
    pub(crate) count: u32,
    ticks: u32,
    pub(crate) deadline: u64,
}

impl Apic {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            mode: Mode::Page,
            page: 0xfee0_0000,
            tpr: 0,
            svr: 0xff,
            ldr: 0,
            dfr: 0xf,
            irr: BTreeSet::new(),
            isr: BTreeSet::new(),
            tmr: BTreeSet::new(),
            icr: [0; 2],
            lvt: [0x1_0000; 6],
            esr: 0,
            errors: 0,
            waits: id != 0,
            events: Vec::new(),
            illegal: false,
            divide: 0,
            initial: 0,
            count: 0,
            ticks: 0,
            deadline: 0,
        }
    }

    /// All registers but those that INIT leaves, and what was not looked at.
    pub(crate) fn init(&mut self) {
        let was = self.clone();
        *self = Self::new(self.id);
        (self.mode, self.page, self.waits) = (was.mode, was.page, was.waits);
        (self.events, self.illegal) = (was.events, was.illegal);
    }

    /// Forgets what arrived, and what runs; which of it is level-triggered, and never ends here.
    pub(crate) fn forget(&mut self, runs: bool) -> BTreeSet<u8> {
        let mut levels: BTreeSet<_> = std::mem::take(&mut self.irr);
        if runs {
            levels.append(&mut self.isr);
        }
        &levels & &std::mem::take(&mut self.tmr)
    }

    /// All that says which interrupts it takes.
    pub(crate) fn addressed(&self) -> (Mode, bool, u8, u8) {
        (self.mode, self.is_enabled(), self.ldr, self.dfr)
    }

    fn is_enabled(&self) -> bool {
        self.mode != Mode::Off && self.svr & 0x100 != 0
    }

    pub(crate) fn ppr(&self) -> u8 {
        let running = self.isr.last().map_or(0, |vector| vector & 0xf0);
        if self.tpr & 0xf0 >= running { self.tpr } else { running }
    }

    pub(crate) fn next(&self) -> Next {
        if self.mode == Mode::Off || self.waits {
            return Next::Nothing;
        }
        let Some(vector) = self.irr.last() else { return Next::Nothing };
        let beats = |other: u8| vector & 0xf0 > other & 0xf0;
        if beats(self.ppr()) {
            Next::Deliver(*vector)
        } else if self.isr.last().is_none_or(|running| beats(*running)) {
            // Vectors of class 1 are above nothing that runs.
            Next::Masked(*vector)
        } else {
            Next::Nothing
        }
    }

    pub(crate) fn put(&mut self, vector: u8, level: bool) {
        self.irr.insert(vector);
        if level {
            self.tmr.insert(vector);
        } else {
            self.tmr.remove(&vector);
        }
    }

    fn raise(&mut self, entry: usize) {
        if self.lvt[entry] & 0x1_0000 != 0 {
            return;
        }
        let vector = (self.lvt[entry] & 0xff) as u8;
        if vector < 16 {
            self.error(6);
        } else {
            self.put(vector, false);
        }
    }

    pub(crate) fn error(&mut self, bit: u32) {
        let is_first = self.errors == 0;
        self.errors |= 1 << bit;
        if is_first {
            self.raise(5);
        }
    }

    pub(crate) fn is_periodic(&self) -> bool {
        self.lvt[0] >> 17 & 3 == 1
    }

    pub(crate) fn has_counter(&self) -> bool {
        self.lvt[0] >> 17 & 3 < 2
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.lvt[0] >> 17 & 3 == 2
    }

    fn divisor(&self) -> u32 {
        match self.divide {
            0b0000 => 2,
            0b0001 => 4,
            0b0010 => 8,
            0b0011 => 16,
            0b1000 => 32,
            0b1001 => 64,
            0b1010 => 128,
            0b1011 => 1,
            other => panic!("{other:#b} is no divide configuration"),
        }
    }

    pub(crate) fn set_initial(&mut self, initial: u32) {
        if self.has_counter() {
            (self.initial, self.count, self.ticks) = (initial, initial, 0);
        }
    }

    pub(crate) fn set_divide(&mut self, divide: u32) {
        (self.divide, self.ticks) = (divide, 0);
    }

    pub(crate) fn set_deadline(&mut self, deadline: u64, tsc: u64) {
        if self.has_deadline() {
            self.deadline = deadline;
            self.meet_deadline(tsc);
        }
    }

    fn meet_deadline(&mut self, tsc: u64) {
        if self.deadline != 0 && tsc >= self.deadline {
            self.deadline = 0;
            self.raise(0);
        }
    }

    pub(crate) fn tick(&mut self, tsc: u64) {
        self.meet_deadline(tsc);
        if self.count == 0 {
            return;
        }
        self.ticks += 1;
        if self.ticks == self.divisor() {
            self.ticks = 0;
            self.count -= 1;
            if self.count == 0 {
                if self.is_periodic() {
                    self.count = self.initial;
                }
                self.raise(0);
            }
        }
    }

    /// Whether the bits of a destination name it: 8 of them, or 32.
    fn is_named(&self, destination: u32, width: u32, logical: bool) -> bool {
        let all = if width == 8 { 0xff } else { u32::MAX };
        let common = |bits: u32, own: u32| (0..16).any(|bit| bits & own & 1 << bit != 0);
        match self.mode {
            Mode::Off => false,
            _ if destination == all => true,
            _ if !logical => destination == self.id,
            Mode::Msrs => {
                destination >> 16 == self.id / 16 && destination >> (self.id % 16) & 1 == 1
            }
            // More bits than it has to be named by.
            Mode::Page if destination > 0xff => false,
            Mode::Page => {
                let own = u32::from(self.ldr);
                match self.dfr {
                    0xf => common(destination, own),
                    0 => destination / 16 == own / 16 && common(destination % 16, own % 16),
                    _ => false,
                }
            }
        }
    }

    /// What is taken next: as `Event` says; and the level-triggered interrupts that it has forgotten by that.
    fn look(&mut self) -> (Option<Event>, BTreeSet<u8>) {
        if self.illegal {
            self.illegal = false;
            self.error(6);
        }
        if let Some(last) = self.events.iter().rposition(|event| *event == Event::Init) {
            self.events.drain(..=last);
            let levels = self.forget(true);
            self.init();
            self.waits = self.id != 0;
            return (Some(Event::Init), levels);
        }
        let is_startup = |event: &Event| matches!(event, Event::Startup(_));
        let start = self.events.iter().copied().find(is_startup);
        self.events.retain(|event| !is_startup(event));
        if self.waits {
            self.waits = start.is_none();
            let levels = if self.waits { BTreeSet::new() } else { self.forget(false) };
            return (start, levels);
        }
        let nmi = self.events.pop();
        self.events.clear();
        (nmi, BTreeSet::new())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub(crate) low: u32,
    pub(crate) to: u8,
    pub(crate) line: bool,
    pub(crate) in_service: bool,
}

/// What a message is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Bits 10 to 8 of what sent it.
    pub(crate) mode: u32,
    pub(crate) vector: u8,
    pub(crate) level: bool,
    pub(crate) destination: u32,
    pub(crate) width: u32,
    pub(crate) logical: bool,
}

pub(crate) struct Machine {
    pub(crate) apics: Vec<Apic>,
    pub(crate) pins: Vec<Pin>,
    pub(crate) clock: u64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let pin = Pin { low: 0x1_0000, to: 0, line: false, in_service: false };
        Self { apics: (0..VCPUS as u32).map(Apic::new).collect(), pins: vec![pin; 24], clock: 0 }
    }

    /// Sends a message to those that it names, but for one; whether an interrupt was accepted.
    pub(crate) fn deliver(&mut self, message: Message, except: Option<u32>) -> bool {
        let Message { mode, vector, level, destination, width, logical } = message;
        let is_interrupt = mode < 2;
        let mut named: Vec<_> = self
            .apics
            .iter_mut()
            .filter(|apic| Some(apic.id) != except)
            .filter(|apic| apic.is_named(destination, width, logical))
            .filter(|apic| !is_interrupt || apic.is_enabled())
            .collect();
        if mode == 1 {
            let Some(lowest) = named.iter().map(|apic| apic.ppr() >> 4).min() else { return false };
            named.retain(|apic| apic.ppr() >> 4 == lowest);
            let chosen = usize::from(vector) % named.len();
            named = vec![named.swap_remove(chosen)];
        }
        let accepted = is_interrupt && vector >= 16 && !named.is_empty();
        for apic in named {
            match mode {
                0 | 1 if vector < 16 => apic.illegal = true,
                0 | 1 => apic.put(vector, level),
                4 => apic.events.push(Event::Nmi),
                5 => apic.events.push(Event::Init),
                6 => apic.events.push(Event::Startup(vector)),
                _ => panic!("nothing is delivered in mode {mode}"),
            }
        }
        accepted
    }

    pub(crate) fn send(&mut self, vcpu: usize) {
        let apic = &self.apics[vcpu];
        let ([low, high], id) = (apic.icr, apic.id);
        let width = if apic.mode == Mode::Msrs { 32 } else { 8 };
        let mode = low >> 8 & 7;
        let shorthand = low >> 18 & 3;
        let own = shorthand == 1 || shorthand == 2;
        let deasserted = low & 0x8000 != 0 && low & 0x4000 == 0;
        let valid = match mode {
            0 | 4 => true,
            1 | 6 => !own,
            5 => !own && !deasserted,
            _ => false,
        };
        if !valid {
            return;
        }
        let vector = low as u8;
        if mode < 2 && vector < 16 {
            self.apics[vcpu].error(5);
            return;
        }
        let named = if width == 8 { high >> 24 } else { high };
        let (destination, width, logical) = match shorthand {
            0 => (named, width, low & 0x800 != 0),
            1 => (id, 32, false),
            _ => (u32::MAX, 32, false),
        };
        let message = Message { mode, vector, level: false, destination, width, logical };
        self.deliver(message, (shorthand == 3).then_some(id));
    }

    fn is_level(&self, pin: usize) -> bool {
        let low = self.pins[pin].low;
        low & 0x8000 != 0 && low >> 8 & 7 < 2
    }

    fn send_pin(&mut self, pin: usize) {
        let (level, Pin { low, to, .. }) = (self.is_level(pin), self.pins[pin].clone());
        let mode = low >> 8 & 7;
        let accepted = matches!(mode, 0 | 1 | 4 | 5)
            && self.deliver(
                Message {
                    mode,
                    vector: low as u8,
                    level,
                    destination: to.into(),
                    width: 8,
                    logical: low & 0x800 != 0,
                },
                None,
            );
        self.pins[pin].in_service |= level && accepted;
    }

    /// Sends what is level-triggered and due.
    fn serve(&mut self, pin: usize) {
        let Pin { low, line, in_service, .. } = self.pins[pin];
        if self.is_level(pin) && line && low & 0x1_0000 == 0 && !in_service {
            self.send_pin(pin);
        }
    }

    pub(crate) fn set_line(&mut self, pin: usize, high: bool) {
        let rises = high && !self.pins[pin].line;
        self.pins[pin].line = high;
        if self.is_level(pin) {
            self.serve(pin);
        } else if rises && self.pins[pin].low & 0x1_0000 == 0 {
            self.send_pin(pin);
        }
    }

    pub(crate) fn write_pin(&mut self, pin: usize, upper: bool, value: u32) {
        if upper {
            self.pins[pin].to = (value >> 24) as u8;
        } else {
            self.pins[pin].low = value & 0x1_afff;
        }
        self.pins[pin].in_service &= self.is_level(pin);
        self.serve(pin);
    }

    pub(crate) fn end_pins(&mut self, vector: u8) {
        for pin in 0..24 {
            if self.is_level(pin) && self.pins[pin].low as u8 == vector {
                self.pins[pin].in_service = false;
                self.serve(pin);
            }
        }
    }

    pub(crate) fn end_all(&mut self, vectors: &BTreeSet<u8>) {
        for vector in vectors {
            self.end_pins(*vector);
        }
    }

    pub(crate) fn look(&mut self, vcpu: usize) -> Option<Event> {
        let (event, levels) = self.apics[vcpu].look();
        self.end_all(&levels);
        event
    }

    /// What nobody has taken is sent again, if this one takes what it did not take.
    pub(crate) fn resend(&mut self, vcpu: usize, was: (Mode, bool, u8, u8)) {
        let now = self.apics[vcpu].addressed();
        if now != was && now.1 {
            (0..24).for_each(|pin| self.serve(pin));
        }
    }

    pub(crate) fn end(&mut self, vcpu: usize) {
        let apic = &mut self.apics[vcpu];
        let Some(vector) = apic.isr.pop_last() else { return };
        if apic.tmr.contains(&vector) {
            self.end_pins(vector);
        }
    }

    pub(crate) fn wait(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.clock += 1;
            let tsc = self.clock * TSC_PER_TICK;
            self.apics.iter_mut().for_each(|apic| apic.tick(tsc));
        }
    }
}
