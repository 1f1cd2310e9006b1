//! The GIC with its list registers against the architecture without them: guests on three vCPUs, of which any may be in
//! its guest or not, devices, SGIs, and every register that changes an interrupt. After each step, when those that were
//! kicked have come out, each vCPU is given what the architecture would give it, and each register reads as it would.

#[path = "../common/hardware.rs"]
mod hardware;
mod naive;
mod saved;
#[path = "../common/state.rs"]
mod state;
mod step;

use std::cell::RefCell;

use hardware::Cpu;
use mayfly_vgic::{Config, CpuInterface, Frame, Read, SgiRegister, Vgic};
use naive::{Gic, LINKED, SPIS, VCPUS};
use proptest::prelude::*;
use step::{Bit, Step, any_step};

const DISTRIBUTOR: Frame = Frame::Distributor;
const REDISTRIBUTORS: Frame = Frame::Redistributors;

struct Machine<'a> {
    gic: Vgic<Box<dyn Fn(usize) + 'a>>,
    cpus: Vec<CpuInterface>,
    inside: [bool; VCPUS],
    model: Gic,
    taken: [Vec<u32>; VCPUS],
    kicked: &'a RefCell<Vec<usize>>,
}

impl Machine<'_> {
    fn new(list_registers: usize, kicked: &RefCell<Vec<usize>>) -> Machine<'_> {
        let config = Config { vcpus: VCPUS, spis: SPIS, list_registers, linked: &[(LINKED, 30)] };
        let kick: Box<dyn Fn(usize)> = Box::new(|vcpu| kicked.borrow_mut().push(vcpu));
        let gic = Vgic::try_new(config, kick).unwrap();
        let cpus = (0..VCPUS).map(|vcpu| gic.cpu_interface(vcpu).unwrap()).collect();
        let taken = [const { Vec::new() }; VCPUS];
        let (inside, model) = ([false; VCPUS], Gic::new());
        Machine { gic, cpus, inside, model, taken, kicked }
    }

    fn enter(&mut self, vcpu: usize) {
        if !self.inside[vcpu] {
            self.kicked.borrow_mut().retain(|kicked| *kicked != vcpu);
        }
        self.gic.enter(&mut self.cpus[vcpu]);
        self.inside[vcpu] = true;
        Cpu(&mut self.cpus[vcpu].registers).check();
    }

    fn leave(&mut self, vcpu: usize) {
        self.gic.leave(&mut self.cpus[vcpu]);
        self.inside[vcpu] = false;
    }

    /// Those that were kicked, and those whose hardware asks for maintenance, come out and go in again, until none is.
    fn sync(&mut self) {
        for round in 0.. {
            assert!(round < 10, "vCPUs are told of something again and again");
            let mut again = false;
            for vcpu in 0..VCPUS {
                let maintenance = Cpu(&mut self.cpus[vcpu].registers).wants_maintenance();
                let stale = self.gic.is_stale(vcpu);
                let kicked = self.kicked.borrow().contains(&vcpu);
                assert!(!self.inside[vcpu] || stale == kicked, "vCPU {vcpu}: a kick for a notice");
                if self.inside[vcpu] && (stale || maintenance) {
                    self.leave(vcpu);
                    self.enter(vcpu);
                    again = true;
                }
            }
            if !again {
                return;
            }
        }
    }

    /// A register's frame, and where it begins there: a vCPU's own interrupts are its redistributor's.
    fn place(vcpu: usize, intid: u32) -> (Frame, u64) {
        if intid < 32 {
            (REDISTRIBUTORS, vcpu as u64 * 0x2_0000 + 0x1_0000)
        } else {
            (DISTRIBUTOR, 0)
        }
    }

    fn write(&self, vcpu: usize, intid: u32, offset: u64, len: u64, value: u64) {
        let (frame, base) = Self::place(vcpu, intid);
        self.gic.write(frame, base + offset, len, value);
    }

    /// As a guest reads: the access is made again after those that were kicked have come out.
    fn read(&mut self, vcpu: usize, intid: u32, offset: u64, len: u64) -> u64 {
        let (frame, base) = Self::place(vcpu, intid);
        for _ in 0..2 {
            match self.gic.read(vcpu, frame, base + offset, len) {
                Read::Value(value) => return value,
                Read::Retry => self.sync(),
                Read::Reserved => panic!("{offset:#x} is a register"),
            }
        }
        panic!("{offset:#x} is not to be had");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Enter(vcpu) => self.enter(vcpu),
            Step::Leave(vcpu) => self.leave(vcpu),
            Step::Acknowledge(vcpu) => self.acknowledge(vcpu),
            Step::End(vcpu) => self.end(vcpu),
            Step::Interface(vcpu, groups, mask) => {
                let cpu = &mut self.cpus[vcpu].registers;
                let rest = cpu.vmcr & !(0xff << 24 | 3);
                cpu.vmcr = rest | u64::from(mask) << 24 | u64::from(groups & 3);
            }
            Step::Bit(bit, vcpu, intid, set) => self.bit(bit, vcpu, intid, set),
            Step::Priority(vcpu, intid, priority) => {
                self.write(vcpu, intid, 0x400 + u64::from(intid), 1, priority.into());
                if let Some(interrupt) = self.model.get(vcpu, intid) {
                    interrupt.priority = priority & 0xf8;
                }
            }
            Step::Trigger(vcpu, intid, edge) => self.trigger(vcpu, intid, edge),
            Step::Route(intid, target) => {
                self.gic.write(DISTRIBUTOR, 0x6000 + 8 * u64::from(intid), 8, target as u64);
                if let Some(interrupt) = self.model.get(0, intid) {
                    interrupt.target = (target < VCPUS).then_some(target);
                }
            }
            Step::Groups(groups) => {
                self.gic.write(DISTRIBUTOR, 0, 4, groups.into());
                self.model.groups = groups & 3;
            }
            Step::Waker(vcpu, asleep) => {
                let waker = vcpu as u64 * 0x2_0000 + 0x14;
                self.gic.write(REDISTRIBUTORS, waker, 4, u64::from(asleep) << 1);
                self.model.asleep[vcpu] = asleep;
            }
            Step::Line(vcpu, intid, high) => {
                let there = if intid < 32 {
                    self.gic.set_ppi(vcpu, intid, high)
                } else {
                    self.gic.set_spi(intid, high)
                };
                assert_eq!(there.is_ok(), (16..32 + SPIS as u32).contains(&intid));
                if let (Ok(()), Some(interrupt)) = (there, self.model.get(vcpu, intid)) {
                    interrupt.set_line(high);
                }
            }
            Step::Pulse(intid) => {
                if self.gic.pulse_spi(intid).is_ok() {
                    let interrupt = self.model.get(0, intid).unwrap();
                    interrupt.latch |= interrupt.edge;
                }
            }
            Step::TakeLinked(vcpu) => {
                // Hardware does not give an active interrupt again.
                let own = self.model.get(vcpu, LINKED).unwrap();
                if !own.is_pending() && own.active.is_none() {
                    own.line = true;
                    self.gic.take_linked(vcpu, LINKED).unwrap();
                }
            }
            Step::WithdrawLinked(vcpu) => {
                self.gic.withdraw_linked(vcpu, LINKED).unwrap();
                self.model.get(vcpu, LINKED).unwrap().line = false;
            }
            Step::Sgi(sender, value) => self.sgi(sender, value),
        }
    }

    fn acknowledge(&mut self, vcpu: usize) {
        if !self.inside[vcpu] {
            return;
        }
        if let Some(intid) = Cpu(&mut self.cpus[vcpu].registers).acknowledge() {
            self.model.acknowledge(vcpu, intid);
            self.taken[vcpu].push(intid);
        }
    }

    fn end(&mut self, vcpu: usize) {
        if !self.inside[vcpu] {
            return;
        }
        let Some(intid) = self.taken[vcpu].pop() else { return };
        Cpu(&mut self.cpus[vcpu].registers).end(intid);
        let interrupt = self.model.get(vcpu, intid).unwrap();
        if interrupt.active == Some(vcpu) {
            interrupt.active = None;
        }
    }

    fn bit(&mut self, bit: Bit, vcpu: usize, intid: u32, set: bool) {
        let (offset, mask) = (bit as u64 + u64::from(intid / 32 * 4), 1 << (intid % 32));
        let value = match bit {
            Bit::Group => {
                let others = self.read(vcpu, intid, offset, 4) & !mask;
                if set { others | mask } else { others }
            }
            _ => mask,
        };
        self.write(vcpu, intid, offset, 4, value);
        let Some(interrupt) = self.model.get(vcpu, intid) else { return };
        match bit {
            Bit::Group => interrupt.group1 = set,
            Bit::SetEnable => interrupt.enabled = true,
            Bit::ClearEnable => interrupt.enabled = false,
            Bit::SetPending => interrupt.latch = true,
            Bit::ClearPending => {
                interrupt.latch = false;
                // It comes again if it is high still.
                interrupt.line &= !interrupt.linked;
            }
            Bit::SetActive => {
                let owner = interrupt.active.or(interrupt.target).unwrap_or(0);
                interrupt.active = Some(owner);
            }
            Bit::ClearActive => interrupt.active = None,
        }
    }

    /// As the manual wants it: of an interrupt that is disabled.
    fn trigger(&mut self, vcpu: usize, intid: u32, edge: bool) {
        let Some(interrupt) = self.model.get(vcpu, intid) else { return };
        if interrupt.enabled || interrupt.active.is_some() {
            return;
        }
        if intid >= 16 {
            interrupt.edge = edge;
        }
        let (offset, place) = (0xc00 + u64::from(intid / 16 * 4), 2 * (intid % 16) + 1);
        let others = self.read(vcpu, intid, offset, 4) & !(1 << place);
        self.write(vcpu, intid, offset, 4, others | u64::from(edge) << place);
    }

    fn sgi(&mut self, sender: usize, value: u64) {
        self.gic.sgi(sender, SgiRegister::Sgi1, value);
        let intid = (value >> 24 & 0xf) as u32;
        for target in 0..VCPUS {
            let listed = value & 0xffff_00ff_00ff_0000 == 0 && value >> target & 1 != 0;
            let named = if value >> 40 & 1 != 0 { target != sender } else { listed };
            if named {
                self.model.get(target, intid).unwrap().latch = true;
            }
        }
    }

    fn batch(&mut self, batch: &[Step]) {
        for step in batch {
            // A guest's own instructions come when nothing is owed to it; the others meet each other on the way.
            if matches!(step, Step::Acknowledge(_) | Step::End(_) | Step::TakeLinked(_)) {
                self.sync();
            }
            self.step(step);
        }
        self.sync();
        self.check();
    }

    /// What each vCPU is given, or would be woken by.
    fn check(&mut self) {
        for vcpu in 0..VCPUS {
            let cpu = Cpu(&mut self.cpus[vcpu].registers);
            let (groups, mask) = (cpu.0.vmcr as u32 & 3, (cpu.0.vmcr >> 24) as u8);
            let (running, given) = (cpu.running_priority(), cpu.best_priority());
            cpu.check();
            let asleep = self.model.asleep[vcpu];
            let deliverable = self.model.deliverable(vcpu);
            let taken = |interrupt: &naive::Interrupt| {
                groups >> u32::from(interrupt.group1) & 1 != 0 && interrupt.priority < mask
            };
            if self.inside[vcpu] {
                let best = deliverable
                    .iter()
                    .filter(|(_, each)| !asleep && taken(each) && each.priority < running)
                    .map(|(_, each)| each.priority)
                    .min();
                assert_eq!(given, best, "vCPU {vcpu}: {deliverable:?}");
            } else {
                let wakes = deliverable.iter().any(|(_, each)| asleep || taken(each));
                assert_eq!(self.gic.is_pending(&self.cpus[vcpu]), wakes, "vCPU {vcpu}");
                let own = self.model.get(vcpu, LINKED).unwrap();
                let holds = own.is_pending() || own.active.is_some();
                assert_eq!(self.gic.holds_physical(vcpu, LINKED), holds, "vCPU {vcpu}");
            }
        }
    }

    fn check_registers(&mut self) {
        for vcpu in 0..VCPUS {
            for first in (0..96).step_by(32) {
                let offset = u64::from(first / 8);
                let read = [0x080, 0x100, 0x180, 0x200, 0x280, 0x300, 0x380]
                    .map(|bank| self.read(vcpu, first, bank + offset, 4));
                for place in 0..32 {
                    let model = self.model.get(vcpu, first + place).cloned().unwrap_or_default();
                    let (enabled, pending) = (model.enabled, model.is_pending());
                    let active = model.active.is_some();
                    let expected =
                        [model.group1, enabled, enabled, pending, pending, active, active];
                    let bits = read.map(|value| value >> place & 1 != 0);
                    assert_eq!(bits, expected, "{} of vCPU {vcpu}: {model:?}", first + place);
                }
            }
        }
    }
}

/// Everything awake, on and enabled, each with a priority: what guests do first, and where most of it happens.
fn boot(machine: &mut Machine<'_>) {
    machine.step(&Step::Groups(3));
    for vcpu in 0..VCPUS {
        machine.step(&Step::Waker(vcpu, false));
        machine.step(&Step::Interface(vcpu, 3, 0xff));
        for intid in [0, 7, 16, LINKED, 32, 33, 34, 35, 36, 37, 71] {
            machine.step(&Step::Bit(Bit::SetEnable, vcpu, intid, true));
            machine.step(&Step::Priority(vcpu, intid, (intid * 24) as u8));
        }
    }
}

fn run(list_registers: usize, booted: bool, batches: &[Vec<Step>]) {
    let kicked = RefCell::new(Vec::new());
    let mut machine = Machine::new(list_registers, &kicked);
    if booted {
        boot(&mut machine);
    }
    for batch in batches {
        machine.batch(batch);
    }
    machine.check_registers();
}

/// `PROPTEST_CASES` says how many more; some dozens take a second.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(64) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_vcpu_is_given_what_the_architecture_gives_with_few_list_registers(
        list_registers in 1..=4_usize,
        booted in prop::bool::weighted(0.8),
        batches in prop::collection::vec(prop::collection::vec(any_step(false), 1..4), 1..60),
    ) {
        run(list_registers, booted, &batches);
    }

    #[test]
    fn a_guest_that_writes_active_bits_is_given_what_the_architecture_gives(
        booted in prop::bool::weighted(0.8),
        batches in prop::collection::vec(prop::collection::vec(any_step(true), 1..4), 1..60),
    ) {
        run(16, booted, &batches);
    }
}
