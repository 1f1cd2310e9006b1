//! The machine of a guest on arm64: the addresses of its memory and devices, and the device tree that lists them.
//!
//! It is laid out as QEMU's `virt` is, so that users write the kernel's command line as they do for QEMU.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::arm64::image::Kernel;
use crate::flat::Flat;
use crate::plan::{BLOCK, MAX_VCPUS};

/// The distributor's registers.
pub const DISTRIBUTOR: u64 = 0x0800_0000;
/// Bytes of them.
pub const DISTRIBUTOR_BYTES: u64 = 0x1_0000;
/// The registers of the ITS, if there is one.
pub const ITS: u64 = 0x0808_0000;
/// Bytes of them.
pub const ITS_BYTES: u64 = 0x2_0000;
/// The redistributors' registers: two frames of 64 KiB a vCPU.
pub const REDISTRIBUTORS: u64 = 0x080a_0000;
/// Bytes of one redistributor.
pub const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
/// The serial port, a PL011.
pub const UART: u64 = 0x0900_0000;
/// Bytes of it.
pub const UART_BYTES: u64 = 0x1000;
/// Its interrupt.
pub const UART_INTERRUPT: u32 = 33;
/// The interrupt of the performance counters of each vCPU.
pub const COUNTERS_INTERRUPT: u32 = 23;
/// The clock, a PL031.
pub const CLOCK: u64 = 0x0901_0000;
/// Bytes of it.
pub const CLOCK_BYTES: u64 = 0x1000;
/// Its interrupt.
pub const CLOCK_INTERRUPT: u32 = 34;
/// What a fork is told of itself: see [`identity`](crate::identity).
pub const IDENTITY: u64 = 0x0902_0000;
/// Bytes of it.
pub const IDENTITY_BYTES: u64 = 0x1000;
/// The interrupt that announces another [generation].
pub const GENERATION_INTERRUPT: u32 = 35;
/// Bytes of the memory that the number of the generation has for itself.
pub const GENERATION_BYTES: u64 = 0x1000;
/// Where the registers of all virtio devices are, in one page: see [`registers`].
pub const VIRTIO: u64 = 0x0a00_0000;
/// Bytes of it.
pub const VIRTIO_PAGE_BYTES: u64 = 0x1000;
/// The source of entropy, a virtio device.
pub const ENTROPY: u64 = 0x0a00_0000;
/// Its interrupt.
pub const ENTROPY_INTERRUPT: u32 = 48;
/// The disk, a virtio device.
pub const DISK: u64 = 0x0a00_0200;
/// Its interrupt.
pub const DISK_INTERRUPT: u32 = 49;
/// The network card, a virtio device.
pub const CARD: u64 = 0x0a00_0400;
/// Its interrupt.
pub const CARD_INTERRUPT: u32 = 50;
/// The console beside the PL011, a virtio device.
pub const CONSOLE: u64 = 0x0a00_0600;
/// Its interrupt.
pub const CONSOLE_INTERRUPT: u32 = 51;
/// The balloon, a virtio device.
pub const BALLOON: u64 = 0x0a00_0800;
/// Its interrupt.
pub const BALLOON_INTERRUPT: u32 = 52;
/// Bytes of a virtio device's registers.
pub const VIRTIO_BYTES: u64 = 0x200;
/// How many SPIs there are. Few: a guest writes a register for each.
pub const SHARED_INTERRUPTS: u32 = 32;
/// Where memory begins.
pub const MEMORY: u64 = 0x4000_0000;
// Redistributors have room below the console.
const _: () = assert!(REDISTRIBUTORS + REDISTRIBUTOR_BYTES * MAX_VCPUS as u64 <= UART);

/// Where a guest of `memory` bytes finds the number of its generation: in its last page, which its tree keeps from other
/// use.
pub const fn generation(memory: u64) -> u64 {
    MEMORY + memory - GENERATION_BYTES
}

/// Where in the memory of a guest of `memory` bytes the page is that it finds at [`VIRTIO`], too, and reads the registers of
/// its virtio devices from: the page before the last, which its tree keeps from other use.
pub const fn registers(memory: u64) -> u64 {
    generation(memory) - VIRTIO_PAGE_BYTES
}

/// The addresses at which a guest finds what was loaded for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The kernel.
    pub kernel: u64,
    /// The ramdisks, each from where to where.
    pub ramdisks: Vec<core::ops::Range<u64>>,
    /// The device tree.
    pub tree: u64,
}

impl Placement {
    /// Lays out a kernel and ramdisks of so many bytes in `memory` bytes; `None` where they do not fit. The ramdisks
    /// follow each other without a gap, for to a kernel they are one.
    pub fn new(kernel: Kernel, ramdisks: &[u64], memory: u64) -> Option<Self> {
        let end = MEMORY.checked_add(memory)?;
        let start = MEMORY + kernel.offset;
        let mut at = start.checked_add(kernel.size)?.checked_next_multiple_of(BLOCK)?;
        let mut places = Vec::new();
        for bytes in ramdisks {
            let next = at.checked_add(*bytes)?;
            places.push(at..next);
            // An archive ends at a multiple of four bytes, as the next has to begin.
            at = next.checked_next_multiple_of(4)?;
        }
        let tree = at.checked_next_multiple_of(BLOCK)?;
        let fits = tree.checked_add(BLOCK)? <= end;
        fits.then_some(Self { kernel: start, ramdisks: places, tree })
    }
}

/// What a guest's device tree says.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether a device is there")]
pub struct Guest<'a> {
    /// The affinity of each vCPU.
    pub affinities: Vec<u64>,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether it has a disk.
    pub has_disk: bool,
    /// Whether it has a network card.
    pub has_card: bool,
    /// Whether it has a console beside its serial port.
    pub has_console: bool,
    /// Whether it has a balloon.
    pub has_balloon: bool,
    /// Whether its interrupt controller has an ITS.
    pub has_its: bool,
    /// Whether its processors have performance counters.
    pub has_counters: bool,
    /// The kernel's parameters.
    pub arguments: &'a str,
    /// Where the ramdisks are, as one.
    pub ramdisks: Option<core::ops::Range<u64>>,
    /// Bytes for the kernel's random numbers.
    pub seed: Vec<u8>,
}

const GIC_HANDLE: u32 = 1;
const CLOCK_HANDLE: u32 = 2;
const ITS_HANDLE: u32 = 3;
/// A private interrupt, in a cell; a shared one is 0.
const PRIVATE: u32 = 1;
const LEVEL_HIGH: u32 = 4;
const RISING_EDGE: u32 = 1;

impl Guest<'_> {
    /// The tree, as a kernel takes it; `look` is called between its nodes, for there may be many.
    pub fn tree(&self, look: impl Fn()) -> Vec<u8> {
        let mut tree = Flat::new();
        tree.begin("");
        tree.cells("#address-cells", &[2]);
        tree.cells("#size-cells", &[2]);
        tree.cells("interrupt-parent", &[GIC_HANDLE]);
        tree.texts("model", &["Mayfly"]);
        tree.texts("compatible", &["linux,dummy-virt"]);
        self.chosen(&mut tree);
        look();
        self.cpus(&mut tree, &look);
        self.platform(&mut tree);
        look();
        uart(&mut tree);
        clock(&mut tree);
        look();
        self.identity(&mut tree);
        look();
        virtio(&mut tree, ENTROPY, ENTROPY_INTERRUPT);
        if self.has_disk {
            virtio(&mut tree, DISK, DISK_INTERRUPT);
        }
        look();
        if self.has_card {
            virtio(&mut tree, CARD, CARD_INTERRUPT);
        }
        if self.has_console {
            virtio(&mut tree, CONSOLE, CONSOLE_INTERRUPT);
        }
        if self.has_balloon {
            virtio(&mut tree, BALLOON, BALLOON_INTERRUPT);
        }
        tree.end();
        look();
        tree.finish()
    }

    fn chosen(&self, tree: &mut Flat) {
        tree.begin("chosen");
        tree.texts("bootargs", &[self.arguments]);
        tree.texts("stdout-path", &[&format!("/{}", uart_name())]);
        tree.property("rng-seed", &self.seed);
        if let Some(ramdisks) = &self.ramdisks {
            tree.addresses("linux,initrd-start", &[ramdisks.start]);
            tree.addresses("linux,initrd-end", &[ramdisks.end]);
        }
        tree.end();
        tree.begin(&format!("memory@{MEMORY:x}"));
        tree.texts("device_type", &["memory"]);
        tree.addresses("reg", &[MEMORY, self.memory]);
        tree.end();
    }

    fn cpus(&self, tree: &mut Flat, look: &impl Fn()) {
        tree.begin("cpus");
        tree.cells("#address-cells", &[1]);
        tree.cells("#size-cells", &[0]);
        for affinity in &self.affinities {
            tree.begin(&format!("cpu@{affinity:x}"));
            tree.texts("device_type", &["cpu"]);
            tree.texts("compatible", &["arm,armv8"]);
            tree.texts("enable-method", &["psci"]);
            tree.cells("reg", &[*affinity as u32]);
            tree.end();
            look();
        }
        tree.end();
    }

    /// What is not at an address, and the interrupt controller.
    fn platform(&self, tree: &mut Flat) {
        tree.begin("psci");
        tree.texts("compatible", &["arm,psci-1.0", "arm,psci-0.2"]);
        tree.texts("method", &["hvc"]);
        tree.end();
        let redistributors = REDISTRIBUTOR_BYTES * self.affinities.len() as u64;
        tree.begin(&format!("intc@{DISTRIBUTOR:x}"));
        tree.texts("compatible", &["arm,gic-v3"]);
        tree.cells("#interrupt-cells", &[3]);
        tree.property("interrupt-controller", &[]);
        tree.addresses("reg", &[DISTRIBUTOR, DISTRIBUTOR_BYTES, REDISTRIBUTORS, redistributors]);
        tree.cells("phandle", &[GIC_HANDLE]);
        if self.has_its {
            its(tree);
        }
        tree.end();
        // Secure, physical, virtual, of EL2: the virtual one, 27, is what there is.
        let interrupts: Vec<u32> =
            [13, 14, 11, 10].into_iter().flat_map(|number| [PRIVATE, number, LEVEL_HIGH]).collect();
        tree.begin("timer");
        tree.texts("compatible", &["arm,armv8-timer"]);
        tree.property("always-on", &[]);
        tree.cells("interrupts", &interrupts);
        tree.end();
        if self.has_counters {
            tree.begin("pmu");
            tree.texts("compatible", &["arm,armv8-pmuv3"]);
            tree.cells("interrupts", &[PRIVATE, COUNTERS_INTERRUPT - 16, LEVEL_HIGH]);
            tree.end();
        }
        tree.begin("apb-pclk");
        tree.texts("compatible", &["fixed-clock"]);
        tree.cells("#clock-cells", &[0]);
        tree.cells("clock-frequency", &[24_000_000]);
        tree.texts("clock-output-names", &["clk24mhz"]);
        tree.cells("phandle", &[CLOCK_HANDLE]);
        tree.end();
    }

    /// The number of its generation (Linux, `Documentation/devicetree/bindings/rng/microsoft,vmgenid.yaml`), and what a
    /// fork is told. The kernel is to map the number's page as a device's, and not as memory.
    fn identity(&self, tree: &mut Flat) {
        let at = generation(self.memory);
        tree.begin("reserved-memory");
        tree.cells("#address-cells", &[2]);
        tree.cells("#size-cells", &[2]);
        tree.property("ranges", &[]);
        tree.begin(&format!("vmgenid@{at:x}"));
        tree.addresses("reg", &[at, GENERATION_BYTES]);
        tree.property("no-map", &[]);
        tree.end();
        let registers = registers(self.memory);
        tree.begin(&format!("registers@{registers:x}"));
        tree.addresses("reg", &[registers, VIRTIO_PAGE_BYTES]);
        tree.property("no-map", &[]);
        tree.end();
        tree.end();
        tree.begin(&format!("vmgenid@{at:x}"));
        tree.texts("compatible", &["microsoft,vmgenid"]);
        tree.addresses("reg", &[at, GENERATION_BYTES]);
        tree.cells("interrupts", &[0, GENERATION_INTERRUPT - 32, RISING_EDGE]);
        tree.end();
        tree.begin(&format!("fork@{IDENTITY:x}"));
        tree.texts("compatible", &["mayfly,fork"]);
        tree.addresses("reg", &[IDENTITY, IDENTITY_BYTES]);
        tree.end();
    }
}

/// The ITS, in the node of the interrupt controller that it belongs to.
fn its(tree: &mut Flat) {
    tree.cells("#address-cells", &[2]);
    tree.cells("#size-cells", &[2]);
    tree.property("ranges", &[]);
    tree.begin(&format!("its@{ITS:x}"));
    tree.texts("compatible", &["arm,gic-v3-its"]);
    tree.addresses("reg", &[ITS, ITS_BYTES]);
    tree.property("msi-controller", &[]);
    tree.cells("#msi-cells", &[1]);
    tree.cells("phandle", &[ITS_HANDLE]);
    tree.end();
}

fn uart_name() -> String {
    format!("pl011@{UART:x}")
}

fn uart(tree: &mut Flat) {
    tree.begin(&uart_name());
    tree.texts("compatible", &["arm,pl011", "arm,primecell"]);
    tree.addresses("reg", &[UART, UART_BYTES]);
    tree.cells("interrupts", &[0, UART_INTERRUPT - 32, LEVEL_HIGH]);
    tree.cells("clocks", &[CLOCK_HANDLE, CLOCK_HANDLE]);
    tree.texts("clock-names", &["uartclk", "apb_pclk"]);
    tree.end();
}

fn clock(tree: &mut Flat) {
    tree.begin(&format!("pl031@{CLOCK:x}"));
    tree.texts("compatible", &["arm,pl031", "arm,primecell"]);
    tree.addresses("reg", &[CLOCK, CLOCK_BYTES]);
    tree.cells("interrupts", &[0, CLOCK_INTERRUPT - 32, LEVEL_HIGH]);
    tree.cells("clocks", &[CLOCK_HANDLE]);
    tree.texts("clock-names", &["apb_pclk"]);
    tree.end();
}

fn virtio(tree: &mut Flat, at: u64, interrupt: u32) {
    tree.begin(&format!("virtio_mmio@{at:x}"));
    tree.texts("compatible", &["virtio,mmio"]);
    tree.addresses("reg", &[at, VIRTIO_BYTES]);
    // Of an interrupt by level the guest comes out when it has ended it. How no edge is lost: `mayfly_devices::line`.
    tree.cells("interrupts", &[0, interrupt - 32, RISING_EDGE]);
    // Devices reach memory through the caches, as processors do.
    tree.property("dma-coherent", &[]);
    tree.end();
}

#[cfg(test)]
mod tests {
    use std::vec;

    use dtoolkit::fdt::Fdt;
    use dtoolkit::{Node, Property};
    use proptest::prelude::*;

    use super::*;

    fn guest() -> Guest<'static> {
        Guest {
            affinities: vec![0, 1],
            memory: 1 << 30,
            has_disk: true,
            has_card: true,
            has_console: true,
            has_balloon: true,
            has_its: true,
            has_counters: true,
            arguments: "console=ttyAMA0",
            ramdisks: Some(0x4400_0000..0x4410_0000),
            seed: vec![7; 32],
        }
    }

    #[test]
    fn a_guest_finds_what_it_was_given() {
        let bytes = guest().tree(|| ());
        let tree = Fdt::new(&bytes).unwrap();
        let value = |path: &str, name: &str| {
            tree.find_node(path).unwrap().property(name).unwrap().value().to_vec()
        };
        assert_eq!(value("/chosen", "bootargs"), b"console=ttyAMA0\0");
        assert_eq!(value("/chosen", "linux,initrd-start"), 0x4400_0000_u64.to_be_bytes());
        assert_eq!(value("/memory@40000000", "reg")[8..], (1_u64 << 30).to_be_bytes());
        assert_eq!(value("/cpus/cpu@1", "reg"), 1_u32.to_be_bytes());
        assert_eq!(value("/psci", "method"), b"hvc\0");
        assert!(tree.find_node("/pl011@9000000").is_some());
        assert_eq!(value("/pl031@9010000", "interrupts")[4..8], 2_u32.to_be_bytes());
        assert_eq!(value("/virtio_mmio@a000000", "interrupts")[4..8], 16_u32.to_be_bytes());
        assert_eq!(value("/virtio_mmio@a000200", "reg")[..8], DISK.to_be_bytes());
        assert_eq!(value("/virtio_mmio@a000600", "interrupts")[4..8], 19_u32.to_be_bytes());
        assert_eq!(value("/virtio_mmio@a000800", "interrupts")[4..8], 20_u32.to_be_bytes());
        let its = "/intc@8000000/its@8080000";
        assert_eq!(value(its, "reg")[..8], ITS.to_be_bytes());
        assert!(value(its, "msi-controller").is_empty());
        assert_eq!(value(its, "#msi-cells"), 1_u32.to_be_bytes());
        assert_eq!(value("/pmu", "interrupts"), [0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 4]);
        let last = [0x7fff_f000_u64.to_be_bytes(), 0x1000_u64.to_be_bytes()].concat();
        assert_eq!(value("/reserved-memory/vmgenid@7ffff000", "reg"), last);
        assert!(value("/reserved-memory/vmgenid@7ffff000", "no-map").is_empty());
        let registers = [0x7fff_e000_u64.to_be_bytes(), 0x1000_u64.to_be_bytes()].concat();
        assert_eq!(value("/reserved-memory/registers@7fffe000", "reg"), registers);
        assert!(value("/reserved-memory/registers@7fffe000", "no-map").is_empty());
        assert_eq!(value("/vmgenid@7ffff000", "reg"), last);
        assert_eq!(value("/vmgenid@7ffff000", "interrupts"), [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]);
        assert_eq!(value("/fork@9020000", "reg")[..8], IDENTITY.to_be_bytes());
        let bytes = Guest {
            has_disk: false,
            has_console: false,
            has_balloon: false,
            has_its: false,
            has_counters: false,
            ..guest()
        }
        .tree(|| ());
        let tree = Fdt::new(&bytes).unwrap();
        assert!(tree.find_node("/virtio_mmio@a000200").is_none());
        assert!(tree.find_node("/virtio_mmio@a000600").is_none());
        assert!(tree.find_node("/virtio_mmio@a000800").is_none());
        assert!(tree.find_node("/pmu").is_none());
        assert!(tree.find_node("/intc@8000000/its@8080000").is_none());
    }

    #[test]
    fn every_device_has_its_own_interrupt_and_its_own_addresses() {
        let interrupts = [
            UART_INTERRUPT,
            CLOCK_INTERRUPT,
            GENERATION_INTERRUPT,
            ENTROPY_INTERRUPT,
            DISK_INTERRUPT,
            CARD_INTERRUPT,
            CONSOLE_INTERRUPT,
            BALLOON_INTERRUPT,
        ];
        for (number, interrupt) in interrupts.iter().enumerate() {
            assert!((32..32 + SHARED_INTERRUPTS).contains(interrupt));
            assert!(!interrupts[..number].contains(interrupt));
        }
        let mut at = 0;
        for (start, bytes) in [
            (DISTRIBUTOR, DISTRIBUTOR_BYTES),
            (ITS, ITS_BYTES),
            (REDISTRIBUTORS, REDISTRIBUTOR_BYTES * u64::from(MAX_VCPUS)),
            (UART, UART_BYTES),
            (CLOCK, CLOCK_BYTES),
            (IDENTITY, IDENTITY_BYTES),
            (VIRTIO, 0),
            (ENTROPY, VIRTIO_BYTES),
            (DISK, VIRTIO_BYTES),
            (CARD, VIRTIO_BYTES),
            (CONSOLE, VIRTIO_BYTES),
            (BALLOON, VIRTIO_BYTES),
            (VIRTIO + VIRTIO_PAGE_BYTES, 0),
            (MEMORY, BLOCK),
        ] {
            assert!(start >= at, "{start:#x}");
            at = start + bytes;
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let kernel = Kernel { offset: 0, size: 64 << 20 };
        assert!(Placement::new(kernel, &[1 << 20], 128 << 20).is_some());
        assert_eq!(Placement::new(kernel, &[1 << 20], 64 << 20), None);
        assert_eq!(Placement::new(kernel, &[u64::MAX], 1 << 30), None);
    }

    proptest! {
        #[test]
        fn nothing_lies_in_something_else(size in 1_u64..1 << 28, ramdisks in prop::collection::vec(0_u64..1 << 26, 0..4), memory in 0_u64..1 << 31) {
            let kernel = Kernel { offset: 0, size };
            let Some(placement) = Placement::new(kernel, &ramdisks, memory) else { return Ok(()) };
            let mut at = placement.kernel + size;
            for ramdisk in &placement.ramdisks {
                prop_assert!(ramdisk.start >= at);
                at = ramdisk.end;
            }
            prop_assert!(placement.tree >= at && placement.tree.is_multiple_of(8));
            prop_assert!(placement.tree + BLOCK <= MEMORY + memory);
            // No tree is so long.
            prop_assert!(placement.tree + BLOCK / 2 <= registers(memory));
        }
    }
}
