//! A GIC for each VM, whose parts are used with the other's: a CPU interface is kept when its vCPU has a new one, and is
//! shown to the other GIC; registers are as no hardware leaves them; a kick panics, or changes the GIC that kicks.
//!
//! Whatever came before, after its reset a GIC delivers.

use std::cell::Cell;
use std::sync::{Arc, Mutex, Weak};

use proptest::prelude::*;

use mayfly_vgic::{
    Config, CpuInterface, Frame, GuestTables, ItsConfig, Kick, Read, SgiRegister, Vgic, Write,
};
use mayfly_vm::Vm;
use mayfly_vm::testing::Kinds;

use crate::host::{pick, returns};

/// The virtual timer's.
const LINKED: u32 = 27;
/// The first SPI, by which a GIC is tried.
const SPI: u32 = 32;
/// CPU interfaces that are kept, at most.
const MOST: usize = 8;

/// What a kick does beside kicking.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Nothing,
    Panics,
    /// Injects, and looks, in the GIC that kicks.
    Injects,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// From here on, a kick does that.
    Tell(Act),
    NewInterface {
        vcpu: usize,
    },
    /// By the GIC of this VM, whosever the interface is.
    Enter {
        at: usize,
    },
    Leave {
        at: usize,
    },
    IsPending {
        at: usize,
    },
    /// As hardware, or nobody, leaves them.
    Registers {
        at: usize,
        hcr: u64,
        vmcr: u64,
        list: [u64; 4],
    },
    LoseInterface {
        at: usize,
    },
    Read {
        vcpu: usize,
        frame: Frame,
        offset: u64,
        len: u64,
    },
    Write {
        frame: Frame,
        offset: u64,
        len: u64,
        value: u64,
        pauses: bool,
    },
    Sgi {
        vcpu: usize,
        register: SgiRegister,
        value: u64,
        pauses: bool,
    },
    Line {
        vcpu: usize,
        intid: u32,
        high: bool,
    },
    Pulse {
        intid: u32,
    },
    Linked {
        vcpu: usize,
        intid: u32,
        takes: bool,
    },
    Deactivate {
        vcpu: usize,
        intid: u32,
    },
    /// With commands and tables that are these bytes, wherever they are.
    ServeIts {
        bytes: [u8; 32],
    },
    Message {
        device: u32,
        event: u32,
    },
    Look {
        vcpu: usize,
    },
    /// With vCPUs inside, too.
    Reset,
    /// A GIC of these numbers, for a moment.
    Make {
        vcpus: usize,
        spis: usize,
        list_registers: usize,
        link: (u32, u32),
    },
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(u64::MAX), 1 => Just(0), 3 => 0..16_u64, 2 => any::<u64>()]
}

/// Registers that there are, mostly.
fn offset() -> impl Strategy<Value = u64> {
    let vcpu = prop_oneof![8 => 0..3_u64, 1 => any::<u64>()];
    let register = prop_oneof![
        8 => (1..8_u64, 0..3_u64).prop_map(|(bank, word)| bank * 0x80 + word * 4),
        2 => 0x400..0x450_u64,
        2 => (0..12_u64).prop_map(|spi| 0x6100 + spi * 8),
        2 => prop::sample::select(vec![0_u64, 0x14, 0xc00, 0xc04, 0xc08]),
        2 => prop::sample::select(vec![0_u64, 0x70, 0x78, 0x80, 0x88, 0x100, 0x108]),
        1 => 0..0x1_0000_u64,
    ];
    (vcpu, any::<bool>(), register).prop_map(|(vcpu, of_sgis, register)| {
        let of_sgis = u64::from(of_sgis) << 16;
        vcpu.wrapping_mul(0x2_0000).wrapping_add(of_sgis).wrapping_add(register)
    })
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let (vcpu, at) = (0..4_usize, any::<usize>());
    let intid = prop_oneof![3 => 0..20_u32, 2 => Just(LINKED), 6 => 32..44_u32, 1 => any::<u32>()];
    let len = prop_oneof![8 => Just(4_u64), 1 => Just(1), 1 => Just(8), 1 => any::<u64>()];
    let frame = prop_oneof![2 => Just(Frame::Distributor), 2 => Just(Frame::Redistributors), 1 => Just(Frame::Its)];
    let command = prop_oneof![
        3 => (0..16_u8, 0..4_u8, 0..4_u8, any::<bool>()).prop_map(|(number, device, lpi, is_valid)| {
            let mut bytes = [0; 32];
            (bytes[0], bytes[4], bytes[8], bytes[12]) = (number, device, lpi & 1, lpi);
            (bytes[13], bytes[23]) = (0x20, u8::from(is_valid) << 7);
            bytes
        }),
        1 => prop::array::uniform32(any::<u8>()),
    ];
    let register = prop_oneof![Just(SgiRegister::Sgi0), Just(SgiRegister::Sgi1)];
    let act = prop_oneof![3 => Just(Act::Nothing), 1 => Just(Act::Panics), 1 => Just(Act::Injects)];
    let count = |most: usize| prop_oneof![4 => 0..=most, 1 => any::<usize>()];
    prop_oneof![
        1 => act.prop_map(Step::Tell),
        4 => vcpu.clone().prop_map(|vcpu| Step::NewInterface { vcpu }),
        8 => at.prop_map(|at| Step::Enter { at }),
        6 => at.prop_map(|at| Step::Leave { at }),
        2 => at.prop_map(|at| Step::IsPending { at }),
        6 => (at, number(), number(), prop::array::uniform4(number()))
            .prop_map(|(at, hcr, vmcr, list)| Step::Registers { at, hcr, vmcr, list }),
        1 => at.prop_map(|at| Step::LoseInterface { at }),
        3 => (vcpu.clone(), frame.clone(), offset(), len.clone())
            .prop_map(|(vcpu, frame, offset, len)| Step::Read { vcpu, frame, offset, len }),
        12 => (frame, offset(), len, number(), any::<bool>()).prop_map(
            |(frame, offset, len, value, pauses)| Step::Write { frame, offset, len, value, pauses }
        ),
        4 => (vcpu.clone(), register, number(), any::<bool>()).prop_map(
            |(vcpu, register, value, pauses)| Step::Sgi { vcpu, register, value, pauses }
        ),
        4 => (vcpu.clone(), intid.clone(), any::<bool>())
            .prop_map(|(vcpu, intid, high)| Step::Line { vcpu, intid, high }),
        4 => intid.clone().prop_map(|intid| Step::Pulse { intid }),
        2 => (vcpu.clone(), intid.clone(), any::<bool>())
            .prop_map(|(vcpu, intid, takes)| Step::Linked { vcpu, intid, takes }),
        2 => (vcpu.clone(), intid.clone())
            .prop_map(|(vcpu, intid)| Step::Deactivate { vcpu, intid }),
        3 => command.prop_map(|bytes| Step::ServeIts { bytes }),
        2 => (0..4_u32, 0..4_u32).prop_map(|(device, event)| Step::Message { device, event }),
        1 => vcpu.prop_map(|vcpu| Step::Look { vcpu }),
        1 => Just(Step::Reset),
        1 => (count(4), count(64), count(17), (intid.clone(), intid)).prop_map(
            |(vcpus, spis, list_registers, link)| {
                Step::Make { vcpus, spis, list_registers, link }
            }
        ),
    ]
}

/// Memory that has the same bytes everywhere.
struct Same([u8; 32]);

impl GuestTables for Same {
    fn read(&self, _: u64, into: &mut [u8]) -> bool {
        into.iter_mut().zip(self.0.iter().cycle()).for_each(|(to, from)| *to = *from);
        true
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        true
    }
}

/// Kicks the vCPU of its VM that has the same number.
struct Kicks {
    vm: Vm<Kinds>,
    gic: Weak<Gic>,
    act: Arc<Mutex<Act>>,
}

type Gic = Vgic<Kicks>;

thread_local! {
    /// A kick injects no more than once.
    static INJECTS: Cell<bool> = const { Cell::new(false) };
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

impl Kick for Kicks {
    fn kick(&self, vcpu: usize) {
        let _ = self.vm.kick(vcpu as u32);
        let act = *self.act.lock().unwrap();
        match act {
            Act::Nothing => {}
            Act::Panics => {
                HAS_PANICKED.set(true);
                panic!("as it was told to");
            }
            Act::Injects if INJECTS.replace(true) => {}
            Act::Injects => {
                if let Some(gic) = self.gic.upgrade() {
                    let _ = gic.pulse_spi(SPI);
                    gic.sgi(vcpu, SgiRegister::Sgi1, 1);
                    let _ = gic.is_stale(vcpu);
                }
                INJECTS.set(false);
            }
        }
    }
}

/// What a guest turns on as it boots: both groups, and all that is given as an edge.
fn turn_on(gic: &Gic) {
    let mut writes = vec![(Frame::Distributor, 0, 3)];
    for word in 0..=gic.spis().div_ceil(32) as u64 {
        writes.push((Frame::Distributor, 0x100 + 4 * word, u32::MAX));
    }
    for word in 2..2 + gic.spis().div_ceil(16) as u64 {
        writes.push((Frame::Distributor, 0xc00 + 4 * word, 0xaaaa_aaaa));
    }
    for base in (0..gic.vcpus() as u64).map(|vcpu| vcpu * 0x2_0000) {
        for (offset, value) in [(0x14, 0), (0x1_0c04, 0xaaaa_aaaa), (0x1_0100, u32::MAX)] {
            writes.push((Frame::Redistributors, base + offset, value));
        }
    }
    for (frame, offset, value) in writes {
        assert_eq!(gic.write(frame, offset, 4, value.into()), Write::Done);
    }
}

/// Of a vCPU whose guest takes interrupts of both groups.
fn interface(gic: &Gic, vcpu: usize) -> CpuInterface {
    let mut cpu = gic.cpu_interface(vcpu).unwrap();
    cpu.registers.vmcr = 0xff << 24 | 3;
    cpu
}

/// The GICs of a program's VMs, and the CPU interfaces of any.
pub(crate) struct Gics {
    of_vms: [Arc<Gic>; 2],
    act: Arc<Mutex<Act>>,
    interfaces: Vec<CpuInterface>,
}

impl Gics {
    /// Of different sizes, so that what is a number of one is none of the other.
    pub(crate) fn new(vms: [Vm<Kinds>; 2]) -> Self {
        let act = Arc::new(Mutex::new(Act::Nothing));
        let small = Config { vcpus: 2, spis: 8, list_registers: 2, linked: &[(LINKED, LINKED)] };
        let large = Config { vcpus: 3, spis: 40, list_registers: 4, linked: &[] };
        let its = ItsConfig { lpis: 64, device_bits: 2, event_bits: 2 };
        let mut configs = [(small, None), (large, Some(its))].into_iter();
        let gics = vms.map(|vm| {
            let (config, its) = configs.next().unwrap();
            let gic = Arc::new_cyclic(|gic| {
                let kicks = Kicks { vm, gic: gic.clone(), act: Arc::clone(&act) };
                match its {
                    Some(its) => Vgic::try_with_its(config, its, kicks).unwrap(),
                    None => Vgic::try_with_pauses(config, None, kicks, &mut || ()).unwrap(),
                }
            });
            turn_on(&gic);
            gic
        });
        let of_both = gics.iter().flat_map(|gic| [interface(gic, 0), interface(gic, 1)]);
        Self { act, interfaces: of_both.collect(), of_vms: gics }
    }

    pub(crate) fn make(&mut self, vm: usize, steps: &[Step]) {
        for step in steps {
            self.make_one(vm, step);
        }
    }

    fn make_one(&mut self, vm: usize, step: &Step) {
        HAS_PANICKED.set(false);
        let returned = returns(|| self.call(vm, step));
        INJECTS.set(false);
        assert!(returned || HAS_PANICKED.get(), "only a kick that is told to panics: {step:?}");
    }

    fn call(&mut self, vm: usize, step: &Step) {
        let gic = &self.of_vms[vm];
        let count = self.interfaces.len().max(1);
        let mut pauses = 0;
        match *step {
            Step::Tell(act) => *self.act.lock().unwrap() = act,
            Step::NewInterface { vcpu } => {
                let made = gic.cpu_interface(vcpu);
                assert_eq!(made.is_some(), vcpu < gic.vcpus());
                if self.interfaces.len() < MOST {
                    self.interfaces.extend(made);
                }
            }
            Step::Enter { at } => {
                if let Some(cpu) = self.interfaces.get_mut(at % count) {
                    gic.enter(cpu);
                    assert!(cpu.used() <= cpu.registers.lr.len());
                }
            }
            Step::Leave { at } => {
                if let Some(cpu) = self.interfaces.get_mut(at % count) {
                    gic.leave(cpu);
                }
            }
            Step::IsPending { at } => {
                if let Some(cpu) = self.interfaces.get_mut(at % count) {
                    let _ = gic.is_pending(cpu);
                    let _ = gic.is_stale(cpu.vcpu());
                }
            }
            Step::Registers { at, hcr, vmcr, list } => {
                if let Some(cpu) = self.interfaces.get_mut(at % count) {
                    (cpu.registers.hcr, cpu.registers.vmcr) = (hcr, vmcr);
                    cpu.registers.lr[..list.len()].copy_from_slice(&list);
                }
            }
            Step::LoseInterface { at } => drop(pick(&mut self.interfaces, at)),
            Step::Read { vcpu, frame, offset, len } => {
                let read = gic.read(vcpu, frame, offset, len);
                if let (Read::Value(value), 1..=7) = (read, len) {
                    assert_eq!(value >> (8 * len), 0, "more than was asked for");
                }
            }
            Step::Write { frame, offset, len, value, pauses: false } => {
                let _ = gic.write(frame, offset, len, value);
            }
            Step::Write { frame, offset, len, value, pauses: true } => {
                let pause = &mut || pauses += 1;
                let written = gic.write_with_pauses(frame, offset, len, value, pause);
                assert!(written == Write::Done || pauses == 0, "nothing was written");
            }
            Step::Sgi { vcpu, register, value, pauses: false } => gic.sgi(vcpu, register, value),
            Step::Sgi { vcpu, register, value, pauses: true } => {
                gic.sgi_with_pauses(vcpu, register, value, &mut || pauses += 1);
            }
            Step::Line { vcpu, intid, high } => {
                let _ = gic.set_ppi(vcpu, intid, high);
                let there = (SPI as usize..SPI as usize + gic.spis()).contains(&(intid as usize));
                assert_eq!(gic.set_spi(intid, high).is_ok(), there);
            }
            Step::Pulse { intid } => drop(gic.pulse_spi(intid)),
            Step::Linked { vcpu, intid, takes: true } => drop(gic.take_linked(vcpu, intid)),
            Step::Linked { vcpu, intid, takes: false } => drop(gic.withdraw_linked(vcpu, intid)),
            Step::Deactivate { vcpu, intid } => gic.deactivate(vcpu, intid),
            Step::ServeIts { bytes } => {
                let _ = gic.serve_its(&Same(bytes), &mut || pauses += 1);
                assert!(gic.has_its() || pauses == 0 && !gic.has_its_work());
            }
            Step::Message { device, event } => drop(gic.send_msi(device, event)),
            Step::Look { vcpu } => {
                let _ = (gic.holds_physical(vcpu, LINKED), mayfly_vgic::affinity(vcpu));
            }
            Step::Reset => gic.reset(),
            Step::Make { vcpus, spis, list_registers, link } => {
                let config = Config { vcpus, spis, list_registers, linked: &[link, link] };
                assert!(Vgic::try_new(config, |_| ()).is_err(), "a PPI has two links");
                let linked = &[link];
                let _ = Vgic::try_new(Config { linked, ..config }, |_| ());
            }
        }
    }

    /// After its reset each GIC delivers, to a vCPU of a new CPU interface.
    pub(crate) fn end(&mut self) {
        *self.act.lock().unwrap() = Act::Nothing;
        for gic in &self.of_vms {
            for intid in SPI..SPI + gic.spis() as u32 {
                gic.set_spi(intid, false).unwrap();
            }
            gic.reset();
            turn_on(gic);
            let mut cpu = interface(gic, 0);
            gic.pulse_spi(SPI).unwrap();
            gic.enter(&mut cpu);
            let loaded: Vec<_> = cpu.registers.lr[..cpu.used()].to_vec();
            assert_eq!(loaded.iter().map(|list| *list as u32).collect::<Vec<_>>(), [SPI]);
            gic.leave(&mut cpu);
        }
    }
}
