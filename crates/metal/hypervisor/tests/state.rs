//! A whole machine that is saved, and loaded a thousand times: each is the same, and goes on alike.

use mayfly_arm64::cache_type::CacheType;
use mayfly_arm64::counters::Offered;
use mayfly_arm64::kinds::Kinds;
use mayfly_arm64::saved;
use mayfly_arm64::vcpu::{Allowed, Context, Owed, Registers, Vcpu};
use mayfly_devices::pl011::Pl011;
use mayfly_devices::psci::{Core, Outcome, Psci};
use mayfly_devices::rtc::Pl031;
use mayfly_devices::virtio::net::Net;
use mayfly_devices::virtio::{Balloon, Block, Console, Disk, DiskError, Entropy, Mmio};
use mayfly_hypervisor::arm64::state::{self, Fresh, NotStopped, Parts, Shape, Start};
use mayfly_hypervisor::needs;
use mayfly_state::{Error, NoRoom, SectionWriter, State, Writer};
use mayfly_vgic::{Config, CpuInterface, Frame, Read, Vgic, affinity};
use proptest::prelude::*;

const VCPUS: usize = 3;
const NOW: u64 = 1_700_000_000;
const SHAPE: Shape = Shape {
    memory: 1 << 28,
    vcpus: 3,
    has_disk: true,
    has_card: true,
    has_console: true,
    has_balloon: true,
};
const ALLOWED: Allowed = Allowed {
    counters: Some(Offered { version: 4, count: 6, events: [0; 2] }),
    aarch32: false,
    keys: true,
};

struct Empty;

impl Disk for Empty {
    fn sectors(&self) -> u64 {
        64
    }

    fn read(&mut self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DiskError> {
        Ok(())
    }
}

type Fill = fn(&mut [u8]);

struct Thread {
    interface: CpuInterface,
    general: Registers,
    context: Context,
    owed: Owed,
    start: Option<Start>,
    is_at_rest: bool,
}

impl state::Vcpu for Thread {
    fn start(&self) -> Option<Start> {
        self.start
    }

    fn interface(&self) -> &CpuInterface {
        &self.interface
    }

    fn save(&self, to: &mut SectionWriter<'_, '_>) -> bool {
        Vcpu { general: &self.general, context: &self.context }.save(self.owed, to);
        self.is_at_rest
    }
}

struct Machine {
    shape: Shape,
    processors: saved::Machine,
    virtual_count: u64,
    gic: Vgic<fn(usize)>,
    psci: Psci<[Core; VCPUS]>,
    uart: Pl011,
    clock: Pl031,
    entropy: Mmio<Entropy<Fill>>,
    disk: Option<Mmio<Block<Empty>>>,
    card: Option<Mmio<Net>>,
    console: Option<Mmio<Console>>,
    balloon: Option<Mmio<Balloon>>,
    vcpus: Vec<Thread>,
}

fn cores() -> [Core; VCPUS] {
    [Core::on(affinity(0)), Core::off(affinity(1)), Core::off(affinity(2))]
}

fn processors() -> saved::Machine {
    saved::Machine::new(&[0x22; 9], 2, CacheType::new(0x8444_c004), 62_500_000)
}

const GIC: Config<'_> =
    Config { vcpus: VCPUS, spis: 32, list_registers: 4, linked: &[(27, 27), (30, 30)] };

fn gic() -> Vgic<fn(usize)> {
    Vgic::try_new(GIC, (|_| {}) as fn(usize)).unwrap()
}

fn gic_with_its() -> Vgic<fn(usize)> {
    Vgic::try_with_its(GIC, needs::ITS, (|_| {}) as fn(usize)).unwrap()
}

fn context(vcpu: usize) -> Context {
    Context::new(1 << 31 | affinity(vcpu), 0, Kinds::KEYS)
}

fn entropy() -> Mmio<Entropy<Fill>> {
    Mmio::new(Entropy::new(|bytes: &mut [u8]| bytes.fill(7)))
}

impl Machine {
    fn new(shape: Shape) -> Self {
        Self::of(shape, gic())
    }

    fn of(shape: Shape, gic: Vgic<fn(usize)>) -> Self {
        let thread = |vcpu| Thread {
            interface: gic.cpu_interface(vcpu).unwrap(),
            general: Registers { pstate: 0x3c5, ..Registers::default() },
            context: context(vcpu),
            owed: Owed::default(),
            start: None,
            is_at_rest: true,
        };
        Self {
            shape,
            processors: processors(),
            virtual_count: 0,
            vcpus: (0..VCPUS).map(thread).collect(),
            gic,
            psci: Psci::new(cores()),
            uart: Pl011::new(),
            clock: Pl031::new(),
            entropy: entropy(),
            disk: shape.has_disk.then(|| Mmio::new(Block::new(Empty, "mayfly"))),
            card: shape.has_card.then(|| Mmio::new(Net::new([2, 0, 0, 0, 0, 1]))),
            console: shape.has_console.then(|| Mmio::new(Console::new())),
            balloon: shape.has_balloon.then(|| Mmio::new(Balloon::new())),
        }
    }

    fn write(&self, buffer: &mut [u8]) -> Result<Result<usize, NoRoom>, NotStopped> {
        let mut writer = Writer::new(buffer);
        let parts = Parts {
            shape: self.shape,
            pause: || (),
            processors: &self.processors,
            virtual_count: self.virtual_count,
            gic: &self.gic,
            psci: &self.psci,
            uart: &self.uart,
            clock: &self.clock,
            entropy: &self.entropy,
            disk: self.disk.as_ref(),
            card: self.card.as_ref(),
            console: self.console.as_ref(),
            balloon: self.balloon.as_ref(),
        };
        parts.save(&self.vcpus, &mut writer)?;
        Ok(writer.finish())
    }

    fn save(&self) -> Result<Vec<u8>, NotStopped> {
        let NoRoom { needed, .. } = self.write(&mut [])?.unwrap_err();
        let mut bytes = vec![0; needed];
        assert_eq!(self.write(&mut bytes)?, Ok(needed));
        Ok(bytes)
    }

    /// A machine of this shape that goes on as the saved one.
    fn load(from: State<'_>, shape: Shape) -> Result<Self, Error> {
        Self::new(shape).going_on(from)
    }

    /// This one, as the saved one.
    fn going_on(self, from: State<'_>) -> Result<Self, Error> {
        let mut machine = self;
        let shape = machine.shape;
        let mut vcpus = Vec::new();
        let fresh = Fresh {
            shape,
            pause: || (),
            processors: &machine.processors,
            gic: &mut machine.gic,
            uart: &mut machine.uart,
            clock: &mut machine.clock,
            entropy: &mut machine.entropy,
            disk: machine.disk.as_mut(),
            card: machine.card.as_mut(),
            console: machine.console.as_mut(),
            balloon: machine.balloon.as_mut(),
        };
        let loaded = fresh.load(from.sections(), cores(), |number, resumed| {
            let (mut general, mut context) = (Registers::default(), context(number as usize));
            let vcpu = Vcpu { general: &mut general, context: &mut context };
            let state::Resumed { start, interface, registers } = resumed;
            let owed = vcpu.load(&ALLOWED, registers)?;
            vcpus.push(Thread { interface, general, context, owed, start, is_at_rest: true });
            Ok(())
        })?;
        machine.psci = loaded.psci;
        machine.virtual_count = loaded.virtual_count;
        machine.vcpus = vcpus;
        Ok(machine)
    }

    fn step(&mut self, (what, vcpu, at, value): Step) {
        let vcpu = vcpu % VCPUS;
        match what % 9 {
            0 => {
                self.uart.write(word(at, 0x50), value as u32);
                self.uart.receive(&value.to_le_bytes());
            }
            1 => self.clock.write(word(at, 0x20), value as u32, NOW),
            2 => {
                if let Outcome::Start { target, entry, context } =
                    self.psci.call(0, &[0xc400_0003, affinity(vcpu), at, value])
                {
                    self.vcpus[target].start = Some(Start { entry, context });
                }
            }
            3 => {
                self.gic.write(Frame::Distributor, word(at, 0x700), 4, value);
            }
            4 => {
                let own = 0x2_0000 * vcpu as u64 + 0x1_0000;
                self.gic.write(Frame::Redistributors, own + word(at, 0x700), 4, value);
            }
            5 => {
                let thread = &mut self.vcpus[vcpu];
                self.gic.enter(&mut thread.interface);
                self.gic.leave(&mut thread.interface);
            }
            6 => {
                let thread = &mut self.vcpus[vcpu];
                thread.general.set((at % 31) as u8, value);
                thread.interface.registers.vmcr = value & 0xff00_0003;
            }
            7 => {
                let bytes = (value as u32).to_le_bytes();
                self.entropy.write(word(at, 0x100), &bytes);
                if let Some(card) = &mut self.card {
                    card.write(word(at, 0x100), &bytes);
                    card.set_link(value & 1 == 0);
                }
            }
            _ => {
                let bytes = (value as u32).to_le_bytes();
                if let Some(disk) = &mut self.disk {
                    disk.write(word(at, 0x100), &bytes);
                }
                if let Some(console) = &mut self.console {
                    console.write(word(at, 0x100), &bytes);
                }
                if let Some(balloon) = &mut self.balloon {
                    balloon.write(word(at, 0x110), &bytes);
                    balloon.ask_for(value as u32);
                }
            }
        }
    }
}

/// The offset of a register below `end`.
fn word(at: u64, end: u64) -> u64 {
    at % (end / 4) * 4
}

type Step = (u8, usize, u64, u64);

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![any::<u64>(), 0..16_u64, Just(u64::MAX)];
    prop::collection::vec((any::<u8>(), any::<usize>(), any::<u64>(), value), 0..80)
}

fn after(steps: &[Step]) -> Machine {
    let mut machine = Machine::new(SHAPE);
    for step in steps {
        machine.step(*step);
    }
    machine
}

#[test]
fn a_thousand_machines_are_loaded_from_one_state() {
    let mut machine = after(&[(6, 1, 5, 0xff00_0003), (2, 2, 0x4020_0000, 7), (0, 0, 0x2c, 0x70)]);
    machine.virtual_count = 0x1234;
    let bytes = machine.save().unwrap();
    let state = State::open(&bytes).unwrap();
    for _ in 0..1000 {
        let fork = Machine::load(state, SHAPE).unwrap();
        assert_eq!(fork.virtual_count, 0x1234);
        assert_eq!(fork.vcpus[2].start, Some(Start { entry: 0x4020_0000, context: 7 }));
        assert_eq!(fork.save().unwrap(), bytes);
    }
}

/// Where this fails and the change is meant, the version of the section that has changed is to be another.
#[test]
fn a_machine_that_was_just_made_has_the_bytes_of_these_versions() {
    let bytes = Machine::new(SHAPE).save().unwrap();
    assert_eq!(bytes.len(), 1424 + 1616 * VCPUS);
    let checksum = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
    assert_eq!(checksum, 0x4b23_368e, "{checksum:#010x}");
}

#[test]
fn a_state_is_not_loaded_into_a_machine_of_another_shape() {
    let bytes = Machine::new(SHAPE).save().unwrap();
    let load = |bytes: &[u8], shape| {
        let state = State::open(bytes).unwrap();
        Machine::load(state, shape).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(load(&bytes, SHAPE), Ok(()));
    for (shape, error) in [
        (Shape { memory: 1 << 29, ..SHAPE }, "section `vm` 0 has 0x10000000 as memory"),
        (Shape { vcpus: 2, ..SHAPE }, "section `vm` 0 has 0x3 as vCPUs"),
        (Shape { has_disk: false, ..SHAPE }, "section `vm` 0 has 0x1 as disk"),
        (Shape { has_card: false, ..SHAPE }, "section `vm` 0 has 0x1 as card"),
        (Shape { has_console: false, ..SHAPE }, "section `vm` 0 has 0x1 as console"),
        (Shape { has_balloon: false, ..SHAPE }, "section `vm` 0 has 0x1 as balloon"),
    ] {
        assert_eq!(load(&bytes, shape), Err(error.to_owned()));
    }
    // Neither has what the other has not.
    let bare =
        Shape { has_disk: false, has_card: false, has_console: false, has_balloon: false, ..SHAPE };
    let bytes = Machine::new(bare).save().unwrap();
    assert_eq!(load(&bytes, bare), Ok(()));
}

#[test]
fn a_machine_with_an_its_goes_on_with_its_registers_and_one_without_is_another() {
    let machine = Machine::of(SHAPE, gic_with_its());
    for (offset, value) in [(0x80, 1 << 63 | 0x4800_0000), (0x100, 1 << 63), (0, 1)] {
        machine.gic.write(Frame::Its, offset, if offset == 0 { 4 } else { 8 }, value);
    }
    let bytes = machine.save().unwrap();
    let state = State::open(&bytes).unwrap();
    let other = Machine::of(SHAPE, gic_with_its()).going_on(state).unwrap();
    assert_eq!(other.save().unwrap(), bytes);
    assert_eq!(other.gic.read(0, Frame::Its, 0x80, 8), Read::Value(1 << 63 | 0x4800_0000));
    let refused = |loaded: Result<Machine, Error>| loaded.map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        refused(Machine::load(state, SHAPE)),
        "the state has section `its` 0 where this machine has `psci` 0"
    );
    let bytes = Machine::new(SHAPE).save().unwrap();
    assert_eq!(
        refused(Machine::of(SHAPE, gic_with_its()).going_on(State::open(&bytes).unwrap())),
        "the state has section `psci` 0 where this machine has `its` 0"
    );
}

#[test]
fn a_machine_that_is_not_stopped_is_not_saved() {
    let mut machine = Machine::new(SHAPE);
    machine.gic.enter(&mut machine.vcpus[1].interface);
    assert!(matches!(machine.save(), Err(NotStopped::Inside(inside)) if inside.vcpu == 1));
    machine.gic.leave(&mut machine.vcpus[1].interface);
    machine.vcpus[2].is_at_rest = false;
    assert_eq!(machine.save(), Err(NotStopped::Vcpu { vcpu: 2 }));
    machine.vcpus[2].is_at_rest = true;
    assert!(machine.save().is_ok());
    machine.psci.call(0, &[0xc400_0003, affinity(1), 0x4020_0000, 0]);
    assert_eq!(machine.save(), Err(NotStopped::Vcpu { vcpu: 1 }), "nobody knows where it begins");
}

#[test]
fn a_vcpu_that_is_off_does_not_begin_and_one_that_is_pending_does() {
    // The section that says where a vCPU begins, of a machine in which it is off, pending, or on.
    let load = |core: usize, turn_on: bool, begins: bool| {
        let steps: &[Step] = if turn_on { &[(2, 1, 0x4020_0000, 7)] } else { &[] };
        let machine = after(steps);
        let mut bytes = machine.save().unwrap();
        let name =
            bytes.windows(16).enumerate().filter(|(_, name)| *name == b"vcpu-start\0\0\0\0\0\0");
        let at = name.map(|(at, _)| at).nth(core).unwrap() + 32;
        bytes[at..at + 17].fill(0);
        bytes[at] = begins.into();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..]);
        bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
        let loaded = Machine::load(State::open(&bytes).unwrap(), SHAPE);
        loaded.map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = |begins: u8| Err(format!("section `vcpu-start` 1 has {begins:#x} as begins"));
    assert_eq!(load(1, false, false), Ok(()), "off");
    assert_eq!(load(1, false, true), refused(1));
    assert_eq!(load(1, true, true), Ok(()), "pending");
    assert_eq!(load(1, true, false), refused(0));
    assert_eq!([load(0, false, false), load(0, false, true)], [Ok(()), Ok(())], "on");
}

#[test]
fn no_byte_of_a_machines_state_is_changed_unseen() {
    let bytes = after(&[(0, 0, 0x2c, 0x70), (3, 0, 0x104, 7)]).save().unwrap();
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        assert!(State::open(&other).is_err(), "byte {at}");
    }
}

/// `PROPTEST_CASES` says how many more.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(64) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_machine_goes_on_as_the_one_that_was_saved(before in any_steps(), then in any_steps()) {
        let mut machine = after(&before);
        let bytes = machine.save().unwrap();
        let mut other = Machine::load(State::open(&bytes).unwrap(), SHAPE).unwrap();
        prop_assert_eq!(&other.save().unwrap(), &bytes);
        for step in &then {
            machine.step(*step);
            other.step(*step);
        }
        prop_assert_eq!(machine.save().unwrap(), other.save().unwrap());
    }
}
