//! Machines that are saved, and loaded: what a fork does beside its memory.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mayfly_arm64::cache_type::CacheType;
use mayfly_arm64::kinds::Kinds;
use mayfly_arm64::vcpu::{self, Allowed, Context, Owed, Registers, Vcpu};
use mayfly_arm64::{counters, saved};
use mayfly_devices::psci::{self, Core, Psci};
use mayfly_devices::virtio::net::Net;
use mayfly_devices::virtio::{self, Mmio};
use mayfly_devices::{pl011, rtc};
use mayfly_state::{Error, State, Writer};
use mayfly_vgic::{Config, CpuInterface, DISTRIBUTOR_STATE, Frame, VCPU_STATE, Vgic, affinity};
use mayfly_vm::Caches;

use crate::setup::Setup;
use crate::table::{Limits, Table, at_most};

const SPIS: usize = 32;

/// More than the states here have.
const ROOM: usize = 0x4000;

/// Where words of a state are loaded as words: at a multiple of 8 bytes.
#[repr(align(8))]
struct Buffer([u8; ROOM]);

/// A machine as the hypervisor makes them, without a disk.
struct Machine {
    processors: saved::Machine,
    gic: Vgic<fn(usize)>,
    psci: Psci<Vec<Core>>,
    uart: pl011::Pl011,
    clock: rtc::Pl031,
    card: Mmio<Net>,
    vcpus: Vec<(Registers, Context, CpuInterface)>,
}

fn cores(vcpus: usize) -> Vec<Core> {
    (0..vcpus).map(|vcpu| Core::on(affinity(vcpu))).collect()
}

impl Machine {
    fn new(vcpus: usize) -> Self {
        let linked = &[(27, 27), (30, 30)];
        let config = Config { vcpus, spis: SPIS, list_registers: 4, linked };
        let kick: fn(usize) = |_| {};
        let gic = Vgic::try_new(config, kick).expect("memory");
        let vcpu = |vcpu| {
            let general = Registers { pstate: 0x3c5, ..Registers::default() };
            let context = Context::new(1 << 31 | affinity(vcpu), 0, Kinds::NONE);
            (general, context, gic.cpu_interface(vcpu).expect("there is one"))
        };
        Self {
            processors: saved::Machine::new(&[0x22; 9], 2, CacheType::new(0x8444_c004), 1),
            vcpus: (0..vcpus).map(vcpu).collect(),
            gic,
            psci: Psci::new(cores(vcpus)),
            uart: pl011::Pl011::new(),
            clock: rtc::Pl031::new(),
            card: Mmio::new(Net::new([2, 0, 0, 0, 0, 1])),
        }
    }

    /// What a booted Linux has turned on: group 1, SGIs, both timers, some SPIs by their priorities; and a timer that is
    /// pending on each vCPU.
    fn boot(&mut self) {
        self.gic.write(Frame::Distributor, 0, 4, 2);
        for register in [0x084, 0x104] {
            self.gic.write(Frame::Distributor, register, 4, 0x0007_0006);
        }
        for vcpu in 0..self.vcpus.len() {
            let own = 0x2_0000 * vcpu as u64 + 0x1_0000;
            self.gic.write(Frame::Redistributors, own + 0x080, 4, u64::from(u32::MAX));
            self.gic.write(Frame::Redistributors, own + 0x100, 4, 0x4800_ffff);
            self.gic.take_linked(vcpu, 27).expect("it is linked");
        }
    }

    fn save(&self) -> (Box<Buffer>, usize) {
        let mut buffer = Box::new(Buffer([0; ROOM]));
        let mut writer = Writer::new(&mut buffer.0);
        writer.section(saved::STATE, 0, |to| self.processors.save(7, to));
        writer
            .section(DISTRIBUTOR_STATE, 0, |to| self.gic.save_distributor(to))
            .expect("all are out");
        writer.section(psci::STATE, 0, |to| self.psci.save(to));
        writer.section(pl011::STATE, 0, |to| self.uart.save(to));
        writer.section(rtc::STATE, 0, |to| self.clock.save(to));
        writer.section(virtio::STATE, 0, |to| self.card.save(to)).expect("it is drained");
        for (number, (general, context, interface)) in (0..).zip(&self.vcpus) {
            writer
                .section(VCPU_STATE, number, |to| self.gic.save_vcpu(interface, to))
                .expect("it is out");
            writer.section(vcpu::STATE, number, |to| {
                Vcpu { general, context }.save(Owed::default(), to);
            });
        }
        let len = writer.finish().expect("there is room");
        (buffer, len)
    }

    fn load(&mut self, state: State<'_>, cores: Vec<Core>) -> Result<u64, Error> {
        let offered = counters::Offered { version: 4, count: 6, events: [0; 2] };
        let allowed = Allowed { counters: Some(offered), aarch32: false, keys: false };
        let mut sections = state.sections();
        let count = self.processors.load(sections.take(saved::STATE, 0)?)?;
        self.gic.load_distributor(sections.take(DISTRIBUTOR_STATE, 0)?)?;
        self.psci = Psci::load(cores, sections.take(psci::STATE, 0)?)?;
        self.uart = pl011::Pl011::load(sections.take(pl011::STATE, 0)?)?;
        self.clock = rtc::Pl031::load(sections.take(rtc::STATE, 0)?)?;
        self.card.load(sections.take(virtio::STATE, 0)?)?;
        for (number, (general, context, interface)) in self.vcpus.iter_mut().enumerate() {
            *interface = self.gic.load_vcpu(number, sections.take(VCPU_STATE, number as u32)?)?;
            let registers = sections.take(vcpu::STATE, number as u32)?;
            Vcpu { general, context }.load(&allowed, registers)?;
        }
        sections.end()?;
        Ok(count)
    }
}

pub(crate) fn rows(table: &mut Table<'_>) {
    let setup = Setup::new(Caches::Coherent, false);
    for (vcpus, checked, loaded, limits) in [
        (1, "check a state, 1 vCPU", "load a machine, 1 vCPU", [14_000, 15_000]),
        (4, "check a state, 4 vCPUs", "load a machine, 4 vCPUs", [41_000, 40_000]),
    ] {
        let mut machine = Machine::new(vcpus);
        machine.boot();
        let (buffer, len) = machine.save();
        let bytes = &buffer.0[..len];
        let [check, load] = limits.map(|limit| Limits { stack: Some(2 << 10), ..at_most(limit) });
        let state = table.row(checked, check, &setup.machine, || State::open(bytes));
        let state = state.expect("it is whole");
        let (mut fork, cores) = (Machine::new(vcpus), cores(vcpus));
        let count = table.row(loaded, load, &setup.machine, || fork.load(state, cores));
        assert_eq!(count, Ok(7));
        let (buffer, len) = fork.save();
        assert!(&buffer.0[..len] == bytes);
    }
}
