//! The registers of a device, as a guest that reads them from memory finds them at any moment.

use std::convert::Infallible;

use mayfly_devices::virtio::{self, Device, Mmio, SIZE};

const INTERRUPT_STATUS: usize = 0x060;
const STATUS: usize = 0x070;

type Registers = [u8; SIZE as usize];

/// A copy of them.
pub(crate) struct Shown {
    copy: Registers,
    shown: virtio::Shown,
}

fn all<D: Device>(device: &Mmio<D>) -> Registers {
    let mut registers = [0; SIZE as usize];
    for at in (0..SIZE).step_by(4) {
        device.read(at, &mut registers[at as usize..][..4]);
    }
    registers
}

fn word(registers: &Registers, at: usize) -> u32 {
    u32::from_le_bytes(registers[at..at + 4].try_into().unwrap())
}

/// The registers but for `InterruptStatus`.
fn others(registers: &Registers) -> (&[u8], &[u8]) {
    (&registers[..INTERRUPT_STATUS], &registers[INTERRUPT_STATUS + 4..])
}

impl Shown {
    pub(crate) fn new<D: Device>(device: &Mmio<D>) -> Self {
        let mut copy = [0; SIZE as usize];
        let put = |at: u64, value: u32| -> Result<(), Infallible> {
            copy[at as usize..][..4].copy_from_slice(&value.to_le_bytes());
            Ok(())
        };
        let shown = virtio::Shown::try_new(device, put).unwrap();
        assert!(copy == all(device), "a word is not shown at first");
        Self { copy, shown }
    }

    /// The driver has written a register.
    pub(crate) fn is_written<D: Device>(&mut self, device: &Mmio<D>) {
        self.renew(device, true);
    }

    /// The device has served its driver, or was changed by its embedder.
    pub(crate) fn is_served<D: Device>(&mut self, device: &Mmio<D>) {
        self.renew(device, false);
    }

    fn renew<D: Device>(&mut self, device: &Mmio<D>, is_written: bool) {
        let (before, after) = (self.copy, all(device));
        let copy = &mut self.copy;
        let put = |at: u64, value: u32| -> Result<(), Infallible> {
            copy[at as usize..][..4].copy_from_slice(&value.to_le_bytes());
            check(&before, copy, &after);
            Ok(())
        };
        if is_written {
            self.shown.is_written(device, put);
        } else {
            self.shown.is_served(device, put);
        }
        assert!(self.copy == after, "a word that is not said to change has changed");
    }
}

/// What a vCPU finds at a moment, where all was as `before`, and is about to be as `after`.
fn check(before: &Registers, now: &Registers, after: &Registers) {
    let reasons = |registers| word(registers, INTERRUPT_STATUS);
    if reasons(now) & !reasons(before) != 0 {
        assert_eq!(others(now), others(after), "it is interrupted for what it does not find");
    }
    if word(now, STATUS) == 0 && word(before, STATUS) != 0 {
        assert_eq!(reasons(now) & !reasons(after), 0, "a reason of before the reset is there");
        assert_eq!(others(now), others(after), "a register is as before the reset");
    }
}
