//! A guest's side of the ITS: its tables, its queue of commands, and the vCPUs that take LPIs.

use std::collections::BTreeMap;

use mayfly_state::{State, Writer};
use mayfly_vgic::mayfly_state;
use mayfly_vgic::{
    Config, CpuInterface, DISTRIBUTOR_STATE, Frame, ITS_STATE, ItsConfig, Read, Served, VCPU_STATE,
    Vgic, Write,
};

use crate::hardware::{Cpu, intid};
use crate::memory::{AT, Memory};

pub(crate) const QUEUE: u64 = AT;
/// One page, so that it wraps.
const QUEUE_BYTES: u64 = 0x1000;
pub(crate) const PROPERTIES: u64 = AT + 0x1000;
pub(crate) const PENDING_TABLE: u64 = AT + 0x1_0000;
const VALID: u64 = 1 << 63;
const PENDING: u64 = 1 << 62;

pub(crate) type Gic = Vgic<fn(usize)>;

pub(crate) struct Guest {
    pub(crate) gic: Gic,
    pub(crate) cpus: Vec<CpuInterface>,
    pub(crate) inside: Vec<bool>,
    pub(crate) memory: Memory,
    config: (usize, ItsConfig, usize),
    /// It goes on in a copy of the GIC that was loaded: every other time.
    copies: bool,
    /// Where the next command goes.
    end: u64,
}

pub(crate) fn gic(vcpus: usize, its: ItsConfig, list_registers: usize) -> Gic {
    let config = Config { vcpus, spis: 32, list_registers, linked: &[] };
    Vgic::try_with_its(config, its, (|_| ()) as fn(usize)).unwrap()
}

/// Of vCPUs whose guest takes interrupts of both groups.
pub(crate) fn interfaces(gic: &Gic) -> Vec<CpuInterface> {
    let interface = |vcpu| {
        let mut cpu = gic.cpu_interface(vcpu).unwrap();
        cpu.registers.vmcr = 0xff << 24 | 3;
        cpu
    };
    (0..gic.vcpus()).map(interface).collect()
}

impl Guest {
    /// One that has turned the ITS on, and no LPIs.
    pub(crate) fn new(
        vcpus: usize,
        lpis: usize,
        device_bits: u32,
        event_bits: u32,
        list_registers: usize,
    ) -> Self {
        let its = ItsConfig { lpis, device_bits, event_bits };
        let gic = gic(vcpus, its, list_registers);
        let cpus = interfaces(&gic);
        let mut guest = Self::on(gic, cpus, its, list_registers);
        guest.begin();
        guest
    }

    /// One on vCPUs that are out.
    pub(crate) fn on(
        gic: Gic,
        cpus: Vec<CpuInterface>,
        its: ItsConfig,
        list_registers: usize,
    ) -> Self {
        let vcpus = gic.vcpus();
        let memory = Memory::new(0x1_0000 * (vcpus + 1));
        let config = (vcpus, its, list_registers);
        Self { gic, cpus, inside: vec![false; vcpus], memory, config, copies: false, end: 0 }
    }

    /// Turns the ITS on, which is off, with tables of its own.
    pub(crate) fn begin(&mut self) {
        self.end = 0;
        self.write(Frame::Distributor, 0, 4, 3);
        self.write(Frame::Redistributors, 0x70, 8, PROPERTIES | 0xd);
        self.write(Frame::Its, 0x80, 8, VALID | QUEUE);
        // Tables that are not read may be anywhere.
        self.write(Frame::Its, 0x100, 8, VALID | 0xdead_0000);
        self.write(Frame::Its, 0x108, 8, VALID | 0xbeef_0000);
        self.write(Frame::Its, 0, 4, 1);
    }

    pub(crate) fn write(&self, frame: Frame, offset: u64, len: u64, value: u64) {
        assert_eq!(self.gic.write(frame, offset, len, value), Write::Done, "{frame:?} {offset:#x}");
    }

    pub(crate) fn read(&self, frame: Frame, offset: u64, len: u64) -> Read {
        self.gic.read(0, frame, offset, len)
    }

    pub(crate) fn properties(&self, lpi: impl TryInto<u64>, byte: u8) {
        self.memory.put(PROPERTIES + lpi.try_into().ok().unwrap(), &[byte]);
    }

    pub(crate) fn pending_table(&self, vcpu: usize, bits: u64, zero: bool) {
        let at = PENDING_TABLE + vcpu as u64 * 0x1_0000;
        self.memory.put(at + 1024, &bits.to_le_bytes());
        let table = at | u64::from(zero) << 62;
        self.write(Frame::Redistributors, vcpu as u64 * 0x2_0000 + 0x78, 8, table);
    }

    /// Turns LPIs of a vCPU on, or off.
    pub(crate) fn turn(&mut self, vcpu: usize, on: bool) {
        self.write(Frame::Redistributors, vcpu as u64 * 0x2_0000, 4, u64::from(on));
        self.finish();
    }

    pub(crate) fn is_on(&self, vcpu: usize) -> bool {
        let read = self.read(Frame::Redistributors, vcpu as u64 * 0x2_0000, 4);
        matches!(read, Read::Value(value) if value & 1 != 0)
    }

    pub(crate) fn queue(&mut self, words: [u64; 4]) {
        self.memory.command(QUEUE + self.end, words);
        self.end = (self.end + 32) % QUEUE_BYTES;
    }

    pub(crate) fn post(&self) {
        self.write(Frame::Its, 0x88, 8, self.end);
    }

    pub(crate) fn serve(&self) -> Served {
        self.gic.serve_its(&self.memory, &mut || {})
    }

    /// Bytes of the queue that are not executed.
    pub(crate) fn unread(&self) -> u64 {
        let Read::Value(at) = self.read(Frame::Its, 0x90, 8) else { panic!("GITS_CREADR is read") };
        (self.end + QUEUE_BYTES - at) % QUEUE_BYTES
    }

    /// All that is to be done is done.
    pub(crate) fn finish(&mut self) {
        for round in 0.. {
            assert!(round < 10, "the ITS has work again and again");
            if !self.gic.has_its_work() {
                assert_eq!(self.unread(), 0);
                return;
            }
            if self.serve() == Served::Waits {
                self.sync();
            }
        }
    }

    pub(crate) fn command(&mut self, words: [u64; 4]) {
        self.queue(words);
        self.post();
        self.finish();
    }

    pub(crate) fn enter(&mut self, vcpu: usize) {
        self.gic.enter(&mut self.cpus[vcpu]);
        self.inside[vcpu] = true;
    }

    pub(crate) fn leave(&mut self, vcpu: usize) {
        self.gic.leave(&mut self.cpus[vcpu]);
        self.inside[vcpu] = false;
    }

    /// vCPUs that have something new, or whose hardware asks for maintenance, come out and go in again, until none is.
    pub(crate) fn sync(&mut self) {
        for round in 0.. {
            assert!(round < 10, "vCPUs are told of something again and again");
            let mut again = false;
            for vcpu in 0..self.cpus.len() {
                let maintenance = Cpu(&mut self.cpus[vcpu].registers).wants_maintenance();
                if self.inside[vcpu] && (maintenance || self.gic.is_stale(vcpu)) {
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

    /// Each vCPU that is inside comes out, and goes in again.
    pub(crate) fn come_out(&mut self) {
        for vcpu in 0..self.cpus.len() {
            if self.inside[vcpu] {
                self.leave(vcpu);
                self.enter(vcpu);
            }
        }
    }

    /// The guest takes the most urgent interrupt, and ends it.
    pub(crate) fn take(&mut self, vcpu: usize) -> Option<u32> {
        if !self.inside[vcpu] {
            return None;
        }
        let mut cpu = Cpu(&mut self.cpus[vcpu].registers);
        let intid = cpu.acknowledge()?;
        cpu.end(intid);
        Some(intid)
    }

    /// What a vCPU has pending in its list registers, and with which priority.
    pub(crate) fn given(&self, vcpu: usize) -> BTreeMap<u32, u8> {
        let registers = self.cpus[vcpu].registers.lr.iter();
        registers
            .filter(|register| **register & PENDING != 0)
            .map(|register| (intid(*register), (register >> 48) as u8))
            .collect()
    }

    pub(crate) fn is_pending(&self, vcpu: usize) -> bool {
        self.gic.is_pending(&self.cpus[vcpu])
    }

    /// The state of the GIC, whose vCPUs are out.
    pub(crate) fn saved(&self) -> Vec<u8> {
        let mut bytes = vec![0; 0x1_0000];
        let mut writer = Writer::new(&mut bytes);
        writer.section(DISTRIBUTOR_STATE, 0, |to| self.gic.save_distributor(to)).unwrap();
        writer.section(ITS_STATE, 0, |to| self.gic.save_its(to, &mut || ())).unwrap();
        for (number, cpu) in (0..).zip(&self.cpus) {
            writer.section(VCPU_STATE, number, |to| self.gic.save_vcpu(cpu, to)).unwrap();
        }
        let len = writer.finish().unwrap();
        bytes.truncate(len);
        bytes
    }

    /// Goes on as a saved one was.
    pub(crate) fn load(&mut self, bytes: &[u8]) -> Result<(), mayfly_state::Error> {
        let (vcpus, its, list_registers) = self.config;
        let mut sections = State::open(bytes)?.sections();
        let mut new = gic(vcpus, its, list_registers);
        new.load_distributor(sections.take(DISTRIBUTOR_STATE, 0)?)?;
        new.load_its(sections.take(ITS_STATE, 0)?, &mut || ())?;
        let mut cpus = Vec::new();
        for vcpu in 0..vcpus {
            cpus.push(new.load_vcpu(vcpu, sections.take(VCPU_STATE, vcpu as u32)?)?);
        }
        sections.end()?;
        self.copies = !self.copies;
        if self.copies {
            new = new.try_copy((|_| ()) as fn(usize), &mut || ()).unwrap();
        }
        (self.gic, self.cpus) = (new, cpus);
        self.inside.fill(false);
        Ok(())
    }

    /// Comes out, is saved, and goes on in another.
    pub(crate) fn save_and_load(&mut self) {
        let inside = self.inside.clone();
        (0..self.cpus.len()).for_each(|vcpu| self.leave(vcpu));
        let bytes = self.saved();
        self.load(&bytes).unwrap();
        assert_eq!(self.saved(), bytes, "it is saved as it was");
        self.finish();
        (0..self.cpus.len()).filter(|vcpu| inside[*vcpu]).for_each(|vcpu| self.enter(vcpu));
    }
}
