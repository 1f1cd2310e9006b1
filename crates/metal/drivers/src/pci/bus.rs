//! The functions of a bus (PCI 3.0, 6.2).

use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::bus::{
    Command, ConfigurationAccess, DeviceFunction, DeviceFunctionInfo, HeaderType,
};
use virtio_drivers::transport::pci::virtio_device_type;

use super::bars::{Bar, MOST_BARS, Windows};
use super::capabilities::{self, Structures};
use super::{NotUsed, Prepared};

/// Offsets in the configuration of a function.
const COMMAND: u8 = 4;
const CLASS: u8 = 8;
const HEADER: u8 = 0xc;
const BARS: u8 = 0x10;
const ROM: u8 = 0x30;
const INTERRUPT: u8 = 0x3c;

/// What is read where there is no function.
const NOBODY: u32 = u32::MAX;
/// In the word of the header: the device has further functions.
const MULTIFUNCTION: u32 = 1 << 23;

/// In a BAR: it is one of ports, its kind, and that it may be read ahead.
const PORTS: u32 = 1;
const KIND: u32 = 6;
const NARROW: u32 = 0;
const WIDE: u32 = 4;
const PREFETCHABLE: u32 = 8;

/// The first device with an identity of virtio 1.0: those below it have been legacy devices, and may be still.
const FIRST_MODERN: u16 = 0x1040;

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its number.
    pub at: DeviceFunction,
    /// What it says that it is.
    pub info: DeviceFunctionInfo,
    /// By which pin it interrupts, from 1 (INTA) to 4; another number is none.
    pub pin: u8,
}

impl Function {
    /// Which virtio device it is, if it is one.
    pub fn device_type(&self) -> Option<DeviceType> {
        // With another header, its BARs would be elsewhere.
        virtio_device_type(&self.info).filter(|_| self.info.header_type == HeaderType::Standard)
    }

    /// It leads to another bus.
    pub fn is_bridge(&self) -> bool {
        matches!(self.info.header_type, HeaderType::PciPciBridge | HeaderType::PciCardbusBridge)
    }

    /// It stands for the bridge from the processors to this bus.
    pub fn is_host_bridge(&self) -> bool {
        (self.info.class, self.info.subclass) == (6, 0)
    }
}

/// A bus, by the configuration of its functions. It is the only one that has it.
#[derive(Debug)]
pub struct Bus<C> {
    pub(super) access: C,
    number: u8,
}

impl<C: ConfigurationAccess> Bus<C> {
    /// The bus with that number.
    pub const fn new(access: C, number: u8) -> Self {
        Self { access, number }
    }

    /// The function at `place`, if there is one: the number of the device in the upper five bits, and of the function in
    /// the lower three. A device that has one function may answer for all eight numbers, and counts once.
    pub fn function(&self, place: u8) -> Option<Function> {
        let at = DeviceFunction { bus: self.number, device: place >> 3, function: place & 7 };
        let first = DeviceFunction { function: 0, ..at };
        if self.access.read_word(first, 0) == NOBODY
            || (at != first && self.access.read_word(first, HEADER) & MULTIFUNCTION == 0)
        {
            return None;
        }
        let [identity, class, header, interrupt] =
            [0, CLASS, HEADER, INTERRUPT].map(|offset| self.access.read_word(at, offset));
        if identity == NOBODY {
            return None;
        }
        let [revision, prog_if, subclass, class] = class.to_le_bytes();
        let info = DeviceFunctionInfo {
            vendor_id: identity as u16,
            device_id: (identity >> 16) as u16,
            class,
            subclass,
            prog_if,
            revision,
            header_type: HeaderType::from((header >> 16) as u8 & 0x7f),
        };
        Some(Function { at, info, pin: (interrupt >> 8) as u8 })
    }

    /// Turns a function off: it reaches no memory, and has no registers and no interrupt. What firmware has left it to do
    /// ends, and what is behind a bridge ends with it.
    pub fn silence(&mut self, function: &Function) {
        self.command(function.at, Command::INTERRUPT_DISABLE);
    }

    /// Gives a virtio device addresses, and has it reach memory and interrupt by its line.
    ///
    /// # Errors
    ///
    /// [`NotUsed`]. It is [silent](Self::silence) then.
    pub fn prepare(
        &mut self,
        function: &Function,
        windows: &mut Windows,
    ) -> Result<Prepared, NotUsed> {
        self.silence(function);
        let at = function.at;
        let bars = self.bars(at)?;
        let structures = match capabilities::structures(&self.access, at, &bars) {
            // It is one that has been there before virtio 1.0.
            Err(None) if function.info.device_id < FIRST_MODERN => return Err(NotUsed::Legacy),
            other => other.map_err(|why| why.unwrap_or(NotUsed::Structures))?,
        };
        let Structures { interrupts, .. } = &structures;
        // A pair of registers of either is off.
        for &(offset, enabled) in interrupts.iter().flatten() {
            let word = self.access.read_word(at, offset);
            self.access.write_word(at, offset, word & !enabled);
        }
        // It would have an address of its own.
        self.access.write_word(at, ROM, 0);
        let places = windows.take_all(&bars)?;
        for (number, place) in places.iter().enumerate() {
            let (Some(place), Some(bar)) = (place, bars[number]) else { continue };
            self.access.write_word(at, bar_offset(number), place.bus as u32);
            if bar.is_wide {
                self.access.write_word(at, bar_offset(number + 1), (place.bus >> 32) as u32);
            }
        }
        let prepared = Prepared::new(function, &structures, &places)?;
        self.command(at, Command::MEMORY_SPACE | Command::BUS_MASTER);
        Ok(prepared)
    }

    /// What the BARs of a function that is silent ask for. One of ports is left out: no port is used, and none is on.
    fn bars(&mut self, at: DeviceFunction) -> Result<[Option<Bar>; MOST_BARS], NotUsed> {
        let mut bars = [None; MOST_BARS];
        let mut number = 0;
        while number < MOST_BARS {
            let low = self.size(at, number);
            let this = number;
            number += 1;
            if low & PORTS != 0 {
                continue;
            }
            let mut mask = u64::from(low & !0xf);
            let is_wide = match low & KIND {
                NARROW => false,
                WIDE if number < MOST_BARS => {
                    mask |= u64::from(self.size(at, number)) << 32;
                    number += 1;
                    true
                }
                _ => return Err(NotUsed::Bar(this)),
            };
            if mask == 0 {
                continue;
            }
            let bytes =
                if is_wide { mask.wrapping_neg() } else { u64::from((mask as u32).wrapping_neg()) };
            bars[this] = Some(Bar { bytes, is_wide, is_prefetchable: low & PREFETCHABLE != 0 });
        }
        Ok(bars)
    }

    /// What a BAR reads as when all its bits were set: those that are not part of its size stay clear.
    fn size(&mut self, at: DeviceFunction, number: usize) -> u32 {
        let offset = bar_offset(number);
        self.access.write_word(at, offset, u32::MAX);
        self.access.read_word(at, offset)
    }

    fn command(&mut self, at: DeviceFunction, command: Command) {
        // The upper half has bits that are cleared by a write of 1.
        self.access.write_word(at, COMMAND, command.bits().into());
    }
}

const fn bar_offset(number: usize) -> u8 {
    BARS + 4 * number as u8
}
