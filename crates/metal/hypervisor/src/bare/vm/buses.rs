//! The devices of a run, on the buses of its VM.

use alloc::sync::Arc;

use mayfly_vm::iobus::IoRange;
use mayfly_vm::{Device, Vm};

use super::format::{Kinds, TableFormat};
use crate::bare::devices::Devices;
use crate::bare::devices::arch::{BUS, BUSES, UART, UART_BYTES};
use crate::bare::devices::uart::Uart;

/// Puts them, and the serial port, on the buses.
///
/// # Errors
///
/// That they cannot be.
pub(crate) fn fill<F: TableFormat>(
    vm: &Vm<Kinds<F>>,
    devices: &Devices,
    uart: &Arc<Uart>,
) -> Result<(), &'static str> {
    for kind in BUSES {
        let its_uart: Arc<dyn Device> = uart.clone();
        // All at once: the bus is published anew for each change.
        let added = vm.bus(kind).edit(|bus| {
            if kind == BUS {
                bus.insert(IoRange { start: UART, len: UART_BYTES }, its_uart)?;
            }
            let those = devices.all().filter(|(of, ..)| *of == kind);
            those
                .map(|(_, range, device)| (range, device))
                .try_for_each(|(range, device)| bus.insert(range, device))
        });
        let ((), replaced) = added.map_err(|_| "its devices cannot be registered")?;
        replaced.defer();
    }
    Ok(())
}
