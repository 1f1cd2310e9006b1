//! A guest's machine: where things are in it, and the device tree that says so.
//!
//! It is laid out as QEMU's `virt` is, so that what a kernel's command line says of it is what people are used to.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use dtoolkit::ToPropertyValue;
use dtoolkit::error::ModelError;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};

use crate::image::Kernel;

/// The distributor's registers.
pub const DISTRIBUTOR: u64 = 0x0800_0000;
/// Bytes of them.
pub const DISTRIBUTOR_BYTES: u64 = 0x1_0000;
/// The redistributors' registers: two frames of 64 KiB a vCPU.
pub const REDISTRIBUTORS: u64 = 0x080a_0000;
/// Bytes of one redistributor.
pub const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
/// The console, a PL011.
pub const UART: u64 = 0x0900_0000;
/// Bytes of it.
pub const UART_BYTES: u64 = 0x1000;
/// Its interrupt.
pub const UART_INTERRUPT: u32 = 33;
/// The clock, a PL031.
pub const CLOCK: u64 = 0x0901_0000;
/// Bytes of it.
pub const CLOCK_BYTES: u64 = 0x1000;
/// Its interrupt.
pub const CLOCK_INTERRUPT: u32 = 34;
/// The source of entropy, a virtio device.
pub const ENTROPY: u64 = 0x0a00_0000;
/// Its interrupt.
pub const ENTROPY_INTERRUPT: u32 = 48;
/// The disk, a virtio device.
pub const DISK: u64 = 0x0a00_0200;
/// Its interrupt.
pub const DISK_INTERRUPT: u32 = 49;
/// Bytes of a virtio device's registers.
pub const VIRTIO_BYTES: u64 = 0x200;
/// SPIs that there are. Few: a guest writes a register for each.
pub const SHARED_INTERRUPTS: u32 = 32;
/// Where memory begins.
pub const MEMORY: u64 = 0x4000_0000;
/// vCPUs of a VM at most: as many as redistributors have room below the console.
pub const MAX_VCPUS: u32 = 64;
/// Bytes of a block, which a kernel begins at a multiple of.
pub const BLOCK: u64 = 2 << 20;

/// Where a guest finds what was loaded for it.
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
    /// Lays out a kernel and ramdisks of so many bytes in `memory` bytes; `None` where they do not fit. The ramdisks follow
    /// each other without a gap, for to a kernel they are one.
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
pub struct Guest<'a> {
    /// The affinity of each vCPU.
    pub affinities: Vec<u64>,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether it has a disk.
    pub has_disk: bool,
    /// The kernel's parameters.
    pub arguments: &'a str,
    /// Where the ramdisks are, as one.
    pub ramdisks: Option<core::ops::Range<u64>>,
    /// Bytes for the kernel's random numbers.
    pub seed: Vec<u8>,
}

const GIC_HANDLE: u32 = 1;
const CLOCK_HANDLE: u32 = 2;
/// A private interrupt, in a cell; a shared one is 0.
const PRIVATE: u32 = 1;
const LEVEL_HIGH: u32 = 4;

fn node(
    name: &str,
    properties: Vec<Result<DeviceTreeProperty, ModelError>>,
) -> Result<DeviceTreeNode, ModelError> {
    let mut node = DeviceTreeNode::new(name)?;
    for property in properties {
        node.add_property(property?);
    }
    Ok(node)
}

fn has<T: ToPropertyValue>(name: &str, value: T) -> Result<DeviceTreeProperty, ModelError> {
    DeviceTreeProperty::new(name, value)
}

/// Addresses and sizes of two cells each.
fn cells(numbers: &[u64]) -> Vec<u32> {
    numbers.iter().flat_map(|number| [(number >> 32) as u32, *number as u32]).collect()
}

fn empty() -> &'static [u8] {
    &[]
}

impl Guest<'_> {
    /// The tree, as a kernel takes it.
    ///
    /// # Errors
    ///
    /// None of its names is one that a tree cannot have, so there is none.
    pub fn tree(&self) -> Result<Vec<u8>, ModelError> {
        let mut tree = DeviceTree::new();
        let root = &mut tree.root;
        root.add_property(has("#address-cells", 2_u32)?);
        root.add_property(has("#size-cells", 2_u32)?);
        root.add_property(has("interrupt-parent", GIC_HANDLE)?);
        root.add_property(has("model", "Mayfly")?);
        root.add_property(has("compatible", "linux,dummy-virt")?);
        root.add_child(self.chosen()?);
        root.add_child(node(
            &format!("memory@{MEMORY:x}"),
            vec![has("device_type", "memory"), has("reg", cells(&[MEMORY, self.memory]))],
        )?);
        root.add_child(self.cpus()?);
        root.add_child(node(
            "psci",
            vec![has("compatible", vec!["arm,psci-1.0", "arm,psci-0.2"]), has("method", "hvc")],
        )?);
        root.add_child(self.controller()?);
        root.add_child(timer()?);
        root.add_child(node(
            "apb-pclk",
            vec![
                has("compatible", "fixed-clock"),
                has("#clock-cells", 0_u32),
                has("clock-frequency", 24_000_000_u32),
                has("clock-output-names", "clk24mhz"),
                has("phandle", CLOCK_HANDLE),
            ],
        )?);
        root.add_child(node(
            &uart_name(),
            vec![
                has("compatible", vec!["arm,pl011", "arm,primecell"]),
                has("reg", cells(&[UART, UART_BYTES])),
                has("interrupts", [0, UART_INTERRUPT - 32, LEVEL_HIGH]),
                has("clocks", [CLOCK_HANDLE, CLOCK_HANDLE]),
                has("clock-names", vec!["uartclk", "apb_pclk"]),
            ],
        )?);
        root.add_child(node(
            &format!("pl031@{CLOCK:x}"),
            vec![
                has("compatible", vec!["arm,pl031", "arm,primecell"]),
                has("reg", cells(&[CLOCK, CLOCK_BYTES])),
                has("interrupts", [0, CLOCK_INTERRUPT - 32, LEVEL_HIGH]),
                has("clocks", CLOCK_HANDLE),
                has("clock-names", "apb_pclk"),
            ],
        )?);
        root.add_child(virtio(ENTROPY, ENTROPY_INTERRUPT)?);
        if self.has_disk {
            root.add_child(virtio(DISK, DISK_INTERRUPT)?);
        }
        Ok(tree.to_dtb())
    }

    fn chosen(&self) -> Result<DeviceTreeNode, ModelError> {
        let mut properties = vec![
            has("bootargs", self.arguments),
            has("stdout-path", format!("/{}", uart_name())),
            has("rng-seed", self.seed.clone()),
        ];
        if let Some(ramdisks) = &self.ramdisks {
            properties.push(has("linux,initrd-start", cells(&[ramdisks.start])));
            properties.push(has("linux,initrd-end", cells(&[ramdisks.end])));
        }
        node("chosen", properties)
    }

    fn cpus(&self) -> Result<DeviceTreeNode, ModelError> {
        let mut cpus = node("cpus", vec![has("#address-cells", 1_u32), has("#size-cells", 0_u32)])?;
        for affinity in &self.affinities {
            cpus.add_child(node(
                &format!("cpu@{affinity:x}"),
                vec![
                    has("device_type", "cpu"),
                    has("compatible", "arm,armv8"),
                    has("enable-method", "psci"),
                    has("reg", *affinity as u32),
                ],
            )?);
        }
        Ok(cpus)
    }

    fn controller(&self) -> Result<DeviceTreeNode, ModelError> {
        let redistributors = REDISTRIBUTOR_BYTES * self.affinities.len() as u64;
        node(
            &format!("intc@{DISTRIBUTOR:x}"),
            vec![
                has("compatible", "arm,gic-v3"),
                has("#interrupt-cells", 3_u32),
                has("interrupt-controller", empty()),
                has(
                    "reg",
                    cells(&[DISTRIBUTOR, DISTRIBUTOR_BYTES, REDISTRIBUTORS, redistributors]),
                ),
                has("phandle", GIC_HANDLE),
            ],
        )
    }
}

fn virtio(at: u64, interrupt: u32) -> Result<DeviceTreeNode, ModelError> {
    node(
        &format!("virtio_mmio@{at:x}"),
        vec![
            has("compatible", "virtio,mmio"),
            has("reg", cells(&[at, VIRTIO_BYTES])),
            has("interrupts", [0, interrupt - 32, LEVEL_HIGH]),
            // Devices reach memory through the caches, as processors do.
            has("dma-coherent", empty()),
        ],
    )
}

fn uart_name() -> String {
    format!("pl011@{UART:x}")
}

fn timer() -> Result<DeviceTreeNode, ModelError> {
    // Secure, physical, virtual, of EL2: the virtual one, 27, is what there is.
    let interrupts: Vec<u32> =
        [13, 14, 11, 10].into_iter().flat_map(|number| [PRIVATE, number, LEVEL_HIGH]).collect();
    node(
        "timer",
        vec![
            has("compatible", "arm,armv8-timer"),
            has("always-on", empty()),
            has("interrupts", interrupts),
        ],
    )
}

#[cfg(test)]
mod tests {
    use dtoolkit::fdt::Fdt;
    use dtoolkit::{Node, Property};
    use proptest::prelude::*;

    use super::*;

    fn guest() -> Guest<'static> {
        Guest {
            affinities: vec![0, 1],
            memory: 1 << 30,
            has_disk: true,
            arguments: "console=ttyAMA0",
            ramdisks: Some(0x4400_0000..0x4410_0000),
            seed: vec![7; 32],
        }
    }

    #[test]
    fn a_guest_finds_what_it_was_given() {
        let bytes = guest().tree().unwrap();
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
        let bytes = Guest { has_disk: false, ..guest() }.tree().unwrap();
        assert!(Fdt::new(&bytes).unwrap().find_node("/virtio_mmio@a000200").is_none());
    }

    #[test]
    fn every_device_has_its_own_interrupt_and_its_own_addresses() {
        let interrupts = [UART_INTERRUPT, CLOCK_INTERRUPT, ENTROPY_INTERRUPT, DISK_INTERRUPT];
        for (number, interrupt) in interrupts.iter().enumerate() {
            assert!((32..32 + SHARED_INTERRUPTS).contains(interrupt));
            assert!(!interrupts[..number].contains(interrupt));
        }
        let mut at = 0;
        for (start, bytes) in [
            (DISTRIBUTOR, DISTRIBUTOR_BYTES),
            (REDISTRIBUTORS, REDISTRIBUTOR_BYTES * u64::from(MAX_VCPUS)),
            (UART, UART_BYTES),
            (CLOCK, CLOCK_BYTES),
            (ENTROPY, VIRTIO_BYTES),
            (DISK, VIRTIO_BYTES),
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
        }
    }
}
