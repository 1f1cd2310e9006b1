//! What a guest reads and writes of its MSRs.

use super::cpu::GuestCpu;
use super::machine::{Machine, Ram, Reason};
use crate::machine::clock;
use crate::machine::msr::{self, Msr};
use crate::svm::event::Exception;

/// Of KVM's MSRs: it is to be told.
const ENABLED: u64 = 1;

impl<F, M: Machine> GuestCpu<'_, F, M> {
    /// Carries RDMSR or WRMSR out, or raises what it raises.
    pub(super) fn msr(&mut self, write: bool) {
        let number = self.registers.general[1] as u32;
        // It may be one of its APIC, or its counter.
        self.settled = None;
        let is_done = if write {
            let value = self.registers.general[2] << 32 | self.vmcb.save.rax & 0xffff_ffff;
            self.write_msr(number, value).is_some()
        } else if let Some(value) = self.read_msr(number) {
            self.vmcb.save.rax = value & 0xffff_ffff;
            self.registers.general[2] = value >> 32;
            true
        } else {
            false
        };
        if is_done {
            self.count(if matches!(msr::msr(number), Msr::Apic) {
                Reason::Apic
            } else {
                Reason::Msr
            });
            self.skip();
        } else {
            self.count(Reason::Refused);
            self.raise(Exception::GeneralProtection);
        }
    }

    fn read_msr(&mut self, number: u32) -> Option<u64> {
        let time = self.machine.time().of(self.vmcb.control.tsc_offset);
        Some(match msr::msr(number) {
            Msr::Counter => time.tsc,
            Msr::Apic => self.machine.vapic().read_msr(&mut self.apic, number, time).ok()?,
            Msr::Pat => self.vmcb.save.pat,
            Msr::Efer => msr::read_efer(self.vmcb.save.efer),
            Msr::CounterAux => self.resident.tsc_aux().into(),
            Msr::SystemTime => self.system_time.map_or(0, |at| at | ENABLED),
            Msr::WallClock => 0,
            Msr::Constant(value) => value,
            Msr::Absent => return None,
        })
    }

    fn write_msr(&mut self, number: u32, value: u64) -> Option<()> {
        let time = self.machine.time().of(self.vmcb.control.tsc_offset);
        match msr::msr(number) {
            Msr::Counter => {
                let ahead = value.wrapping_sub(time.tsc);
                let offset = &mut self.vmcb.control.tsc_offset;
                *offset = offset.wrapping_add(ahead);
                self.tell_time();
            }
            Msr::Apic => {
                self.machine.vapic().write_msr(&mut self.apic, number, value, time).ok()?;
            }
            Msr::Pat => self.vmcb.save.pat = msr::write_pat(value).ok()?,
            Msr::Efer => {
                let save = &mut self.vmcb.save;
                let efer = msr::write_efer(save.efer, value, save.cr0).ok()?;
                // Whether a page may be executed is in what TLBs have.
                self.outdated.note(save.efer != efer);
                save.efer = efer;
            }
            Msr::CounterAux => self.resident.set_tsc_aux(u32::try_from(value).ok()?),
            Msr::SystemTime => {
                self.system_time = (value & ENABLED != 0).then_some(value & !ENABLED);
                self.tell_time();
            }
            Msr::WallClock => {
                let told = clock::wall_clock(self.machine.time().began_at, 0);
                // Where there is no memory, nothing is told.
                let _ = self.machine.ram().write(value, &told);
            }
            Msr::Constant(_) => {}
            Msr::Absent => return None,
        }
        Some(())
    }

    /// Tells the guest the time, where it wants to be told.
    fn tell_time(&mut self) {
        let Some(address) = self.system_time else { return };
        let time = self.machine.time().of(self.vmcb.control.tsc_offset);
        let told = clock::system_time(self.machine.time().rate, time.tsc, time.clock);
        // As above.
        let _ = self.machine.ram().write(address, &told);
    }
}
