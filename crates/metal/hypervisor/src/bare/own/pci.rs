//! Devices on the PCI buses of the machine.
//!
//! When the machine starts, each function of the first bus behind each bridge is turned off first, whatever firmware has left
//! it to do: no function has the addresses that another gets, none writes to memory, and none interrupts. Those that are used
//! get addresses then.
//!
//! Guests have none of this: the memory of a VM is of frames that the device tree calls memory, and a bridge whose addresses
//! are some of these is not used.

use alloc::string::{String, ToString};
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use mayfly_drivers::Registers;
use mayfly_drivers::pci::{Bus, ConfigurationAccess, DeviceFunction, Function, Window, Windows};
use mayfly_hypervisor::board::Region;
use mayfly_hypervisor::tree::{PciBus, PciPlace};

use super::{Found, Offer};
use crate::bare::processor::own::Status;
use crate::bare::threads::console::say;
use crate::bare::threads::interrupts;

/// Starts what is on these buses.
pub(super) fn find(places: &[PciPlace], found: &mut Found, reach: &mut dyn FnMut(&Region) -> bool) {
    for (domain, PciPlace { at, bus }) in places.iter().enumerate() {
        match bus {
            Ok(bus) => find_on(domain, bus, found, reach),
            Err(why) => say!("mayfly: the PCI bus at {at:#x} is not used: {why}"),
        }
    }
}

/// Starts what is on a bus; `domain` is the number of its bridge.
fn find_on(
    domain: usize,
    place: &PciBus,
    found: &mut Found,
    reach: &mut dyn FnMut(&Region) -> bool,
) {
    let configuration = Configuration(place.configuration.start as usize);
    let mut bus = Bus::new(configuration, place.number);
    let mut windows = Windows::new(place.windows.iter().map(|window| Window {
        bus: window.bus,
        cpu: window.cpu.start,
        bytes: window.cpu.end - window.cpu.start,
        is_prefetchable: window.is_prefetchable,
    }));
    let mut bridges = 0_u32;
    for number in 0..=u8::MAX {
        // Some of this takes its time, and a bus may have 256 of it.
        interrupts::look();
        let Some(function) = bus.function(number).filter(|function| !function.is_host_bridge())
        else {
            continue;
        };
        bus.silence(&function);
        bridges += u32::from(function.is_bridge());
    }
    for number in 0..=u8::MAX {
        interrupts::look();
        let Some(function) = bus.function(number) else { continue };
        let Some(kind) = function.device_type() else { continue };
        let at = function.at;
        let offer = || prepare(&mut bus, &function, place, &mut windows, reach);
        if !found.take(kind, format_args!("PCI {domain:04x}:{at}"), offer) {
            bus.silence(&function);
        }
    }
    if bridges > 0 {
        let number = place.number;
        say!(
            "mayfly: PCI {domain:04x}:{number:02x}: nothing is looked for behind its bridges ({bridges})"
        );
    }
}

/// Has a function be a device that can be used.
fn prepare(
    bus: &mut Bus<Configuration>,
    function: &Function,
    place: &PciBus,
    windows: &mut Windows,
    reach: &mut dyn FnMut(&Region) -> bool,
) -> Result<Offer, String> {
    let DeviceFunction { device, function: number, .. } = function.at;
    if place.is_behind_iommu(device, number) {
        return Err("an IOMMU is between it and memory".into());
    }
    let line = place.line(device, number, function.pin);
    let line = line.ok_or("it has no interrupt (INTx) that leads to the interrupt controller")?;
    let prepared = bus.prepare(function, windows).map_err(|why| why.to_string())?;
    if !prepared.bars().all(|bar| reach(&(bar.cpu..bar.cpu + bar.bytes))) {
        return Err("its registers cannot be mapped".into());
    }
    let status = Status::Pci(prepared.interrupt() as usize);
    // SAFETY: `reach` has mapped them, and beside these registers only the status of the interrupt is made of them.
    let registers = unsafe { prepared.registers() }.map_err(|why| why.to_string())?;
    Ok(Offer { registers: Registers::Pci(registers), line, status })
}

/// The configuration of the functions of a bus, 4 KiB each, from that address on, where it is mapped as a device. It is the
/// only way to it.
struct Configuration(usize);

impl Configuration {
    fn at(&self, function: DeviceFunction, offset: u8) -> usize {
        let place = usize::from(function.device & 31) << 3 | usize::from(function.function & 7);
        self.0 + (place << 12 | usize::from(offset & !3))
    }
}

impl ConfigurationAccess for Configuration {
    fn read_word(&self, function: DeviceFunction, offset: u8) -> u32 {
        let at = with_exposed_provenance::<u32>(self.at(function, offset));
        // SAFETY: in the configuration of the bus, and aligned. A function that is not there reads as ones.
        unsafe { at.read_volatile() }
    }

    fn write_word(&mut self, function: DeviceFunction, offset: u8, data: u32) {
        let at = with_exposed_provenance_mut::<u32>(self.at(function, offset));
        // SAFETY: as above. What is written is what the drivers have of a function.
        unsafe { at.write_volatile(data) };
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self(self.0)
    }
}
