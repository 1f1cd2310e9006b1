//! The whole machine of a stopped VM, as it is saved: its sections, in order.
//!
//! | section | number | of |
//! | --- | --- | --- |
//! | `vm` | 0 | [`Shape`]: how large it is, and which devices it has |
//! | `arm64` | 0 | its processors, and where its virtual counter is ([`saved`]) |
//! | `gic`, `psci`, `pl011`, `pl031` | 0 | its interrupt controller, power states, serial port and clock |
//! | `its` | 0 | its ITS and its LPIs, if it has them |
//! | `virtio` | 0, 1, 2, 3, 4 | its source of entropy; its disk, its card, its virtio console and its balloon, if it has them |
//! | `vcpu-start`, `gic-vcpu`, `arm64-vcpu` | that of the vCPU | a vCPU: where it begins, if it was turned on and has not begun; its CPU interface; its registers |
//!
//! The bytes of its memory and of its disk are not part of it, nor is the generator behind its source of entropy. Before it
//! is saved, all vCPUs are out of their guests, and their registers and list registers out of the processors; the threads
//! that work for devices are stopped, and have given back what they took. What is not so is [`NotStopped`].

use mayfly_arm64::saved;
use mayfly_arm64::vcpu;
use mayfly_devices::psci::{self, Core, Psci};
use mayfly_devices::virtio::net::Net;
use mayfly_devices::virtio::{
    self, Balloon, Block, Console, Device, Disk, Entropy, Mmio, NotDrained,
};
use mayfly_devices::{pl011, rtc};
use mayfly_state::{Error, Kind, SectionReader, SectionWriter, Sections, Writer};
use mayfly_vgic::{CpuInterface, DISTRIBUTOR_STATE, ITS_STATE, Kick, VCPU_STATE, VcpuInside, Vgic};

/// The section of the shape of a VM.
pub const VM: Kind = Kind::new("vm", 3);
/// The section that says where a vCPU begins.
pub const START: Kind = Kind::new("vcpu-start", 1);

const ENTROPY: u32 = 0;
const DISK: u32 = 1;
const CARD: u32 = 2;
const CONSOLE: u32 = 3;
const BALLOON: u32 = 4;

/// How large a VM is, and which devices it has: a state is loaded into one of the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether a device is there")]
pub struct Shape {
    /// Its memory, in bytes.
    pub memory: u64,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Whether it has a disk.
    pub has_disk: bool,
    /// Whether it has a network card.
    pub has_card: bool,
    /// Whether it has a virtio console.
    pub has_console: bool,
    /// Whether it has a balloon.
    pub has_balloon: bool,
}

impl Shape {
    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u64(self.memory);
        to.u32(self.vcpus);
        to.flag(self.has_disk);
        to.flag(self.has_card);
        to.flag(self.has_console);
        to.flag(self.has_balloon);
    }

    fn load(&self, mut from: SectionReader<'_>) -> Result<(), Error> {
        from.expect("memory", self.memory)?;
        from.expect_u32("vCPUs", self.vcpus)?;
        from.expect_flag("disk", self.has_disk)?;
        from.expect_flag("card", self.has_card)?;
        from.expect_flag("console", self.has_console)?;
        from.expect_flag("balloon", self.has_balloon)?;
        from.end()
    }
}

/// Where a vCPU begins that was turned on, and has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its first instruction.
    pub entry: u64,
    /// What it finds in x0.
    pub context: u64,
}

/// Whether a core is as its vCPU is: one that is pending is to begin, and one that is off is not. (The first is on before it
/// has begun.)
fn is_consistent<C: AsRef<[Core]>>(psci: &Psci<C>, vcpu: u32, start: Option<Start>) -> bool {
    let core = vcpu as usize;
    match start {
        Some(_) => psci.is_pending(core) || psci.is_on(core),
        None => !psci.is_pending(core),
    }
}

fn save_start(start: Option<Start>, to: &mut SectionWriter<'_, '_>) {
    let Start { entry, context } = start.unwrap_or(Start { entry: 0, context: 0 });
    to.flag(start.is_some());
    to.u64(entry);
    to.u64(context);
}

fn load_start<C: AsRef<[Core]>>(
    psci: &Psci<C>,
    vcpu: u32,
    mut from: SectionReader<'_>,
) -> Result<Option<Start>, Error> {
    let begins = from.flag("begins")?;
    let (entry, context) = (from.u64("entry")?, from.u64("context")?);
    from.check("entry", entry, begins || entry == 0)?;
    from.check("context", context, begins || context == 0)?;
    let start = begins.then_some(Start { entry, context });
    from.check("begins", begins.into(), is_consistent(psci, vcpu, start))?;
    from.end()?;
    Ok(start)
}

/// Why a VM cannot be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStopped {
    /// A vCPU is in its guest, or its list registers are in a processor.
    #[error(transparent)]
    Inside(#[from] VcpuInside),
    /// The registers of a vCPU are in a processor, it has an access to a device that is not answered, or it was turned on
    /// and does not know yet where it begins.
    #[error("vCPU {vcpu} is not at rest")]
    Vcpu {
        /// Which one.
        vcpu: u32,
    },
    /// Requests of a device are under way.
    #[error(transparent)]
    NotDrained(#[from] NotDrained),
}

/// A vCPU of a stopped VM.
pub trait Vcpu {
    /// Where it begins, if it was turned on and has not begun.
    fn start(&self) -> Option<Start>;

    /// Its CPU interface.
    fn interface(&self) -> &CpuInterface;

    /// Writes its registers, as [`vcpu::Vcpu::save`] does. False if they are in a processor, or if it has an access to a
    /// device that is not answered.
    #[must_use]
    fn save(&self, to: &mut SectionWriter<'_, '_>) -> bool;
}

/// The parts of a stopped VM beside its vCPUs.
#[derive(Debug)]
pub struct Parts<'a, K, C, D, F> {
    /// What it is.
    pub shape: Shape,
    /// Called now and then where there is much to save, for a caller that has interrupts masked.
    pub pause: fn(),
    /// What its processors are to a guest.
    pub processors: &'a saved::Machine,
    /// What its virtual counter showed when it was stopped.
    pub virtual_count: u64,
    /// Its interrupt controller.
    pub gic: &'a Vgic<K>,
    /// Its power states.
    pub psci: &'a Psci<C>,
    /// Its serial port.
    pub uart: &'a pl011::Pl011,
    /// Its clock.
    pub clock: &'a rtc::Pl031,
    /// Its source of entropy.
    pub entropy: &'a Mmio<Entropy<F>>,
    /// Its disk, if the shape has one.
    pub disk: Option<&'a Mmio<Block<D>>>,
    /// Its card, if the shape has one.
    pub card: Option<&'a Mmio<Net>>,
    /// Its virtio console, if the shape has one.
    pub console: Option<&'a Mmio<Console>>,
    /// Its balloon, if the shape has one.
    pub balloon: Option<&'a Mmio<Balloon>>,
}

impl<K, C, D, F> Parts<'_, K, C, D, F>
where
    K: Kick,
    C: AsRef<[Core]>,
    D: Disk,
    F: FnMut(&mut [u8]),
{
    /// Writes the machine, with its `vcpus` in the order of their numbers. A caller that has interrupts masked may look for
    /// them as it gives one.
    ///
    /// # Errors
    ///
    /// [`NotStopped`].
    pub fn save<'v, V: Vcpu + 'v>(
        &self,
        vcpus: impl IntoIterator<Item = &'v V>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NotStopped> {
        writer.section(VM, 0, |to| self.shape.save(to));
        writer.section(saved::STATE, 0, |to| self.processors.save(self.virtual_count, to));
        writer.section(DISTRIBUTOR_STATE, 0, |to| self.gic.save_distributor(to))?;
        if self.gic.has_its() {
            writer.section(ITS_STATE, 0, |to| self.gic.save_its(to, &mut || (self.pause)()))?;
        }
        writer.section(psci::STATE, 0, |to| self.psci.save(to));
        writer.section(pl011::STATE, 0, |to| self.uart.save(to));
        writer.section(rtc::STATE, 0, |to| self.clock.save(to));
        save_virtio(Some(self.entropy), ENTROPY, writer)?;
        save_virtio(self.disk, DISK, writer)?;
        save_virtio(self.card, CARD, writer)?;
        save_virtio(self.console, CONSOLE, writer)?;
        save_virtio(self.balloon, BALLOON, writer)?;
        for (number, vcpu) in (0..).zip(vcpus) {
            if !is_consistent(self.psci, number, vcpu.start()) {
                return Err(NotStopped::Vcpu { vcpu: number });
            }
            writer.section(START, number, |to| save_start(vcpu.start(), to));
            writer.section(VCPU_STATE, number, |to| self.gic.save_vcpu(vcpu.interface(), to))?;
            if !writer.section(vcpu::STATE, number, |to| vcpu.save(to)) {
                return Err(NotStopped::Vcpu { vcpu: number });
            }
        }
        Ok(())
    }
}

fn save_virtio<D: Device>(
    device: Option<&Mmio<D>>,
    number: u32,
    writer: &mut Writer<'_>,
) -> Result<(), NotDrained> {
    device.map_or(Ok(()), |device| writer.section(virtio::STATE, number, |to| device.save(to)))
}

/// The parts of a VM that was just made, which is to become a saved one.
#[derive(Debug)]
pub struct Fresh<'a, K, D, F> {
    /// What it is.
    pub shape: Shape,
    /// Called now and then where there is much to load, for a caller that has interrupts masked.
    pub pause: fn(),
    /// What its processors are to a guest.
    pub processors: &'a saved::Machine,
    /// Its interrupt controller.
    pub gic: &'a mut Vgic<K>,
    /// Its serial port.
    pub uart: &'a mut pl011::Pl011,
    /// Its clock.
    pub clock: &'a mut rtc::Pl031,
    /// Its source of entropy.
    pub entropy: &'a mut Mmio<Entropy<F>>,
    /// Its disk, if the shape has one: with the bytes of the saved one's.
    pub disk: Option<&'a mut Mmio<Block<D>>>,
    /// Its card, if the shape has one.
    pub card: Option<&'a mut Mmio<Net>>,
    /// Its virtio console, if the shape has one.
    pub console: Option<&'a mut Mmio<Console>>,
    /// Its balloon, if the shape has one.
    pub balloon: Option<&'a mut Mmio<Balloon>>,
}

/// What a VM that was loaded has, beside its vCPUs.
#[derive(Debug)]
pub struct Loaded<C> {
    /// Its power states.
    pub psci: Psci<C>,
    /// What its virtual counter is to show when its vCPUs go on: see [`saved::offset`].
    pub virtual_count: u64,
}

/// A vCPU that is to go on: what its thread takes.
#[derive(Debug)]
pub struct Resumed<'s> {
    /// Where it begins, if it has not begun.
    pub start: Option<Start>,
    /// Its CPU interface.
    pub interface: CpuInterface,
    /// Its registers, for [`vcpu::Vcpu::load`].
    pub registers: SectionReader<'s>,
}

impl<K, D, F> Fresh<'_, K, D, F>
where
    K: Kick,
    D: Disk,
    F: FnMut(&mut [u8]),
{
    /// Has the machine become the saved one, with `cores` for its power states. Calls `resume` with each vCPU, by its
    /// number, which may look for interrupts.
    ///
    /// # Errors
    ///
    /// [`Error`] says what this machine does not have so. The machine is of no use then.
    pub fn load<'s, C: AsRef<[Core]>>(
        self,
        mut sections: Sections<'s>,
        cores: C,
        mut resume: impl FnMut(u32, Resumed<'s>) -> Result<(), Error>,
    ) -> Result<Loaded<C>, Error> {
        self.shape.load(sections.take(VM, 0)?)?;
        let virtual_count = self.processors.load(sections.take(saved::STATE, 0)?)?;
        self.gic.load_distributor(sections.take(DISTRIBUTOR_STATE, 0)?)?;
        if self.gic.has_its() {
            self.gic.load_its(sections.take(ITS_STATE, 0)?, &mut || (self.pause)())?;
        }
        let psci = Psci::load(cores, sections.take(psci::STATE, 0)?)?;
        *self.uart = pl011::Pl011::load(sections.take(pl011::STATE, 0)?)?;
        *self.clock = rtc::Pl031::load(sections.take(rtc::STATE, 0)?)?;
        load_virtio(Some(self.entropy), ENTROPY, &mut sections)?;
        load_virtio(self.disk, DISK, &mut sections)?;
        load_virtio(self.card, CARD, &mut sections)?;
        load_virtio(self.console, CONSOLE, &mut sections)?;
        load_virtio(self.balloon, BALLOON, &mut sections)?;
        for number in 0..self.shape.vcpus {
            let start = load_start(&psci, number, sections.take(START, number)?)?;
            let interface =
                self.gic.load_vcpu(number as usize, sections.take(VCPU_STATE, number)?)?;
            let registers = sections.take(vcpu::STATE, number)?;
            resume(number, Resumed { start, interface, registers })?;
        }
        sections.end()?;
        Ok(Loaded { psci, virtual_count })
    }
}

fn load_virtio<D: Device>(
    device: Option<&mut Mmio<D>>,
    number: u32,
    sections: &mut Sections<'_>,
) -> Result<(), Error> {
    match device {
        Some(device) => device.load(sections.take(virtio::STATE, number)?),
        None => Ok(()),
    }
}
