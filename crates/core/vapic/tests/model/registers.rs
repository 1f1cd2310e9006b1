//! The registers of the model: what a write does, and what each reads.

use std::collections::BTreeSet;

use crate::naive::{Machine, Mode};

fn word(set: &BTreeSet<u8>, index: u32) -> u32 {
    set.iter().filter(|v| u32::from(**v) / 32 == index).fold(0, |word, v| word | 1 << (v % 32))
}

/// The bits that an entry of the local vector table keeps.
fn lvt_bits(entry: usize) -> u32 {
    match entry {
        0 => 0x7_00ff,
        1 | 2 => 0x1_07ff,
        3 | 4 => 0x1_a7ff,
        _ => 0x1_00ff,
    }
}

impl Machine {
    /// Whether there is a register of this number in a mode that has registers.
    pub(crate) fn has(mode: Mode, number: u32) -> bool {
        match number {
            2 | 3 | 8 | 0xa | 0xb | 0xd | 0xf..=0x28 | 0x30 | 0x32..=0x39 | 0x3e => true,
            0xe | 0x31 => mode == Mode::Page,
            0x3f => mode == Mode::Msrs,
            _ => false,
        }
    }

    /// What a register reads; `None` is not read.
    pub(crate) fn read(&self, vcpu: usize, number: u32) -> Option<u64> {
        let apic = &self.apics[vcpu];
        let wide = apic.mode == Mode::Msrs;
        if !Self::has(apic.mode, number) {
            return None;
        }
        let value = match number {
            2 => {
                if wide {
                    apic.id
                } else {
                    apic.id << 24
                }
            }
            3 => 0x5_0014,
            8 => apic.tpr.into(),
            0xa => apic.ppr().into(),
            0xd if wide => (apic.id / 16) << 16 | 1 << (apic.id % 16),
            0xd => u32::from(apic.ldr) << 24,
            0xe => u32::from(apic.dfr) << 28 | 0x0fff_ffff,
            0xf => apic.svr,
            0x10..0x18 => word(&apic.isr, number - 0x10),
            0x18..0x20 => word(&apic.tmr, number - 0x18),
            0x20..0x28 => word(&apic.irr, number - 0x20),
            0x28 => apic.esr,
            0x30 if wide => return Some(u64::from(apic.icr[1]) << 32 | u64::from(apic.icr[0])),
            0x30 => apic.icr[0],
            0x31 => apic.icr[1],
            0x32..0x38 => apic.lvt[number as usize - 0x32],
            0x38 => apic.initial,
            0x39 => apic.count,
            0x3e => apic.divide,
            _ => return None,
        };
        Some(value.into())
    }

    /// The bits of a register that may be one, when it is written.
    fn bits(number: u32) -> u64 {
        match number {
            8 | 0x3f => 0xff,
            0xf => 0x3ff,
            0x30 => 0xffff_ffff_000c_dfff,
            0x32..0x38 => {
                let entry = number as usize - 0x32;
                let pin = if matches!(entry, 3 | 4) { 1 << 14 } else { 0 };
                u64::from(lvt_bits(entry) | 1 << 12 | pin)
            }
            0x38 => 0xffff_ffff,
            0x3e => 0xb,
            _ => 0,
        }
    }

    fn is_written(mode: Mode, number: u32) -> bool {
        match number {
            2 | 3 | 0xa | 0x10..0x28 | 0x39 => false,
            0xd => mode == Mode::Page,
            _ => Self::has(mode, number),
        }
    }

    pub(crate) fn write_page(&mut self, vcpu: usize, number: u32, value: u32) {
        if self.apics[vcpu].mode != Mode::Page {
            return;
        }
        if !Self::has(Mode::Page, number) {
            self.apics[vcpu].error(7);
        } else if Self::is_written(Mode::Page, number) {
            let kept = match number {
                0xd | 0xe | 0x31 => value,
                _ => value & Self::bits(number) as u32,
            };
            self.set(vcpu, number, kept.into());
        }
    }

    /// Whether it is a general-protection fault.
    pub(crate) fn write_msr(&mut self, vcpu: usize, number: u32, value: u64) -> bool {
        if self.apics[vcpu].mode != Mode::Msrs
            || !Self::is_written(Mode::Msrs, number)
            || value & !Self::bits(number) != 0
        {
            return true;
        }
        self.set(vcpu, number, value);
        false
    }

    fn set(&mut self, vcpu: usize, number: u32, value: u64) {
        let wide = self.apics[vcpu].mode == Mode::Msrs;
        let was = self.apics[vcpu].addressed();
        let (apic, low) = (&mut self.apics[vcpu], value as u32);
        match number {
            8 => apic.tpr = low as u8,
            0xb => self.end(vcpu),
            0xd => apic.ldr = (low >> 24) as u8,
            0xe => apic.dfr = (low >> 28) as u8,
            0xf => {
                apic.svr = low;
                if low & 0x100 == 0 {
                    apic.lvt.iter_mut().for_each(|entry| *entry |= 0x1_0000);
                }
            }
            0x28 => {
                apic.esr = apic.errors;
                apic.errors = 0;
            }
            0x30 => {
                apic.icr[0] = low & !(1 << 12);
                if wide {
                    apic.icr[1] = (value >> 32) as u32;
                }
                self.send(vcpu);
            }
            0x31 => apic.icr[1] = low & 0xff00_0000,
            0x32..0x38 => {
                let entry = number as usize - 0x32;
                let modes = (apic.lvt[0] >> 17 & 3, low >> 17 & 3);
                if entry == 0 && modes.0 != modes.1 && (modes.0 > 1 || modes.1 > 1) {
                    (apic.initial, apic.count, apic.deadline) = (0, 0, 0);
                }
                let masked = if apic.svr & 0x100 == 0 { 0x1_0000 } else { 0 };
                apic.lvt[entry] = low & lvt_bits(entry) | masked;
            }
            0x38 => apic.set_initial(low),
            0x3e => apic.set_divide(low),
            0x3f if low < 16 => apic.error(5),
            0x3f if apic.svr & 0x100 != 0 => apic.put(low as u8, false),
            _ => {}
        }
        self.resend(vcpu, was);
    }

    /// `IA32_APIC_BASE` is written; whether that is a general-protection fault.
    pub(crate) fn write_base(&mut self, vcpu: usize, value: u64) -> bool {
        let apic = &mut self.apics[vcpu];
        let to = match value >> 10 & 3 {
            0 => Mode::Off,
            2 => Mode::Page,
            3 => Mode::Msrs,
            _ => return true,
        };
        let illegal = matches!((apic.mode, to), (Mode::Off, Mode::Msrs) | (Mode::Msrs, Mode::Page));
        if illegal || value & 0x2ff != 0 || value >> 40 != 0 {
            return true;
        }
        apic.page = value & !0xfff;
        if apic.mode != to {
            let was = apic.addressed();
            let off = apic.mode == Mode::Off || to == Mode::Off;
            apic.mode = to;
            let mut levels = BTreeSet::new();
            if off {
                levels = apic.forget(true);
                apic.init();
            }
            if to == Mode::Msrs {
                apic.icr[1] = 0;
            }
            self.end_all(&levels);
            self.resend(vcpu, was);
        }
        false
    }

    pub(crate) fn base(&self, vcpu: usize) -> u64 {
        let apic = &self.apics[vcpu];
        let mode = match apic.mode {
            Mode::Off => 0,
            Mode::Page => 2,
            Mode::Msrs => 3,
        };
        apic.page | mode << 10 | if vcpu == 0 { 0x100 } else { 0 }
    }
}
