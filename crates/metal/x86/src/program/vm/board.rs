//! What the vCPUs of a VM share: its interrupt controllers, its devices and its time.

use alloc::sync::Arc;
use core::fmt;

use mayfly_devices::cmos::{self, Cmos};
use mayfly_devices::line::settle;
use mayfly_devices::uart16550::Uart16550;
use mayfly_vapic::{Config, Deadline, Error, Kick, Time, Vapic};
use mayfly_x86::boot::plan::Plan;
use mayfly_x86::machine::clock::{self, Rate};
use mayfly_x86::machine::{cpuid, layout};
use x86_64::instructions::port::Port;

use super::counts::Counts;
use crate::program::processor::lock::SpinLock;
use crate::program::processor::timer;
use crate::program::world::memory::GuestMemory;

/// A guest's timer interrupts no sooner than this after the last entry, in nanoseconds.
const SHORTEST: u64 = 20_000;

/// How a VM ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has turned itself off.
    Off,
    /// It begins anew.
    Reset,
    /// A vCPU has shut down, by an exception while another was being raised.
    TripleFault(u32),
    /// A vCPU could not go on.
    Failed(u32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "has turned itself off"),
            Self::Reset => write!(f, "has reset itself"),
            Self::TripleFault(vcpu) => {
                write!(f, "has ended: vCPU {vcpu} has shut down (a triple fault)")
            }
            Self::Failed(vcpu) => write!(f, "has ended: vCPU {vcpu} could not go on"),
        }
    }
}

/// Nobody is to be told: there is one flow of control, which asks each vCPU's APIC before it runs it.
#[derive(Debug)]
pub(super) struct Asked;

impl Kick for Asked {
    fn kick(&self, _vcpu: usize) {}
}

/// What the vCPUs of a VM share.
pub(super) struct Board {
    pub(super) memory: Arc<GuestMemory>,
    /// Where its memory ends.
    pub(super) memory_end: u64,
    pub(super) vapic: Vapic<Asked>,
    pub(super) uart: SpinLock<Uart16550>,
    pub(super) clock: SpinLock<Cmos>,
    pub(super) counts: Counts,
    pub(super) rate: Rate,
    /// A guest's timer interrupts no sooner than so many ticks of the host's counter after the last entry.
    pub(super) shortest: u64,
    /// The host's counter at which its own was zero.
    pub(super) began: u64,
    /// The second, since 1970, at which it was.
    pub(super) began_at: u64,
    end: SpinLock<Option<End>>,
}

impl Board {
    pub(super) fn try_new(plan: &Plan<'_>, memory: &Arc<GuestMemory>) -> Result<Self, Error> {
        let config = Config {
            vcpus: plan.vcpus as usize,
            x2apic: plan.x2apic,
            tsc_deadline: true,
            physical_bits: cpuid::PHYSICAL_BITS,
        };
        let rate = timer::rate();
        Ok(Self {
            memory: Arc::clone(memory),
            memory_end: plan.memory,
            vapic: Vapic::try_new(config, Asked)?,
            uart: SpinLock::new(Uart16550::new()),
            clock: SpinLock::new(Cmos::new()),
            counts: Counts::default(),
            rate,
            shortest: rate.ticks(SHORTEST),
            began: timer::ticks(),
            began_at: cmos::second(clock_of_machine).unwrap_or(0),
            end: SpinLock::new(None),
        })
    }

    /// Nanoseconds since it began.
    pub(super) fn nanoseconds(&self) -> u64 {
        self.rate.nanoseconds(timer::ticks().wrapping_sub(self.began))
    }

    /// The second, since 1970.
    pub(super) fn second(&self) -> u64 {
        self.began_at + self.nanoseconds() / 1_000_000_000
    }

    /// What a vCPU's clocks say, whose counter is so far behind the host's.
    pub(super) fn time(&self, tsc_offset: u64) -> Time {
        let ticks = timer::ticks();
        Time {
            clock: self.rate.nanoseconds(ticks.wrapping_sub(self.began)),
            tsc: ticks.wrapping_add(tsc_offset),
        }
    }

    /// When a deadline is, by the host's counter.
    pub(super) fn when(&self, deadline: Deadline, tsc_offset: u64) -> u64 {
        match deadline {
            Deadline::Clock(at) => self.began.saturating_add(self.rate.ticks(at)),
            Deadline::Tsc(at) => {
                let now = timer::ticks();
                clock::due(at, now.wrapping_add(tsc_offset), now)
            }
        }
    }

    /// Has the VM end so, unless it ends already.
    pub(super) fn end(&self, end: End) {
        self.end.lock().get_or_insert(end);
    }

    /// How it ends, once it does.
    pub(super) fn ending(&self) -> Option<End> {
        *self.end.lock()
    }

    /// Gives the guest what was typed; whether it took it.
    pub(super) fn typed(&self, byte: u8) -> bool {
        let is_taken = self.uart.lock().receive(&[byte]) == 1;
        self.drive_uart();
        is_taken
    }

    /// The UART's interrupt is as the UART says.
    pub(super) fn drive_uart(&self) {
        settle(
            || self.uart.lock().interrupt(),
            |level| {
                let is_pin = self.vapic.set_line(layout::UART_PIN as usize, level).is_ok();
                debug_assert!(is_pin, "the IOAPIC has the UART's pin");
            },
        );
    }
}

/// A register of the machine's own clock.
fn clock_of_machine(index: u8) -> u8 {
    // SAFETY: the clock's ports, which change no memory.
    unsafe {
        Port::<u8>::new(layout::CLOCK).write(index);
        Port::<u8>::new(layout::CLOCK + 1).read()
    }
}
