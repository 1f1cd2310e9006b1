//! The console of a guest beside its serial port: a virtio device, which Linux calls hvc0. What its driver sends is printed
//! as what a guest writes to its serial port is, by the thread of the VM's devices.
//!
//! **Turns.** The driver looks without end for the buffer that it has sent to be used, with interrupts masked. So a vCPU
//! that notifies the device gives its processor up until the thread has served it.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_devices::virtio::{Console, Mmio};
use mayfly_hypervisor::log::PIECE;
use mayfly_vm::Device;

use super::arch::CONSOLE_INTERRUPT;
use super::lines::Lines;
use super::turn::Turn;
use super::uart::Uart;
use super::virtio::{Ram, Virtio};
use crate::bare::threads::{self, Bell};
use crate::bare::world::World;

/// The most pieces of output in one turn of the thread, which serves the VM's other devices, too. While the VM is in front, a
/// piece takes milliseconds at a serial line.
const PIECES: u32 = 8;

/// The virtio console of a VM, for one run of it.
pub(crate) struct Hvc {
    virtio: Virtio<Console, ()>,
    served: Turn,
}

pub(super) fn make((): ()) -> Mmio<Console> {
    Mmio::new(Console::new())
}

impl Hvc {
    /// The console as after a reset.
    pub(super) fn new(world: &Arc<World>, lines: &Arc<Lines>, bell: &Arc<Bell>) -> Self {
        let virtio = Virtio::new(world, (), make, lines, CONSOLE_INTERRUPT, bell);
        Self { virtio, served: Turn::new() }
    }

    /// One that goes on as another one was.
    pub(super) fn made(
        world: &Arc<World>,
        console: Box<Mmio<Console>>,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Self {
        let virtio = Virtio::made(world, console, make, lines, CONSOLE_INTERRUPT, bell);
        Self { virtio, served: Turn::new() }
    }

    /// The device.
    pub(super) fn virtio(&self) -> &Virtio<Console, ()> {
        &self.virtio
    }

    /// Takes bytes that were typed. Returns how many; `None` where its driver does not work, and the guest has its serial
    /// port alone. Waits for nothing: its caller has a lock.
    pub(super) fn typed(&self, bytes: &[u8]) -> Option<usize> {
        let receive =
            |console: &mut Mmio<Console>| console.receives().then(|| console.receive(bytes));
        // Where the lock is taken, none for now.
        let taken = self.virtio.with_now(receive).unwrap_or(Some(0))?;
        if taken > 0 {
            self.virtio.look_again();
        }
        Some(taken)
    }

    /// Prints at `terminal` what its driver sends, and gives it what was typed, until there is no more for now, or `is_over`;
    /// or until others are to have their turn.
    #[inline(never)]
    pub(super) fn serve(&self, ram: &Ram<'_>, terminal: &Uart, is_over: impl Fn() -> bool) {
        if !self.virtio.take_notice() {
            return;
        }
        let mut piece = [0; PIECE];
        for number in 1.. {
            let sent = self.virtio.with(|console| {
                console.deliver(ram);
                console.next_output(&mut piece, ram)
            });
            self.virtio.drive();
            let Some(count) = sent else { break };
            terminal.print(&piece[..count]);
            if is_over() {
                break;
            }
            if number == PIECES {
                // Its vCPU goes on waiting: the turn is not over.
                return self.virtio.look_again();
            }
            threads::preemption_point();
        }
        self.served.end();
    }
}

impl Device for Hvc {
    fn read(&self, vcpu: u32, offset: u64, data: &mut [u8]) {
        self.virtio.read(vcpu, offset, data);
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        self.served.wait_after(|| self.virtio.write_register(offset, data));
    }
}
