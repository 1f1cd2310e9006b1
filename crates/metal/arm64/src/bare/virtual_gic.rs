//! The virtual interface of the interrupt controller: the part of a guest's GIC that is in this processor (`ICH_*_EL2`,
//! IHI 0069, "The virtual CPU interface").

use core::arch::asm;

use mayfly_vgic::Registers;

/// What the processor has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// List registers.
    pub list_registers: usize,
    /// Active priorities registers of each group: 1, 2 or 4.
    priority_registers: usize,
}

impl Shape {
    /// This processor's, as `ICH_VTR_EL2` says.
    pub fn read() -> Self {
        let vtr = crate::read_register!("ich_vtr_el2");
        // PREbits, less one: 5 bits of preemption take 32 bits, 6 take 64, 7 take 128.
        let priority_registers = match vtr >> 26 & 7 {
            6.. => 4,
            5 => 2,
            _ => 1,
        };
        Self { list_registers: (vtr & 0x1f) as usize + 1, priority_registers }
    }

    /// What processors of both shapes have; `None` where their priorities differ, which a vCPU's registers depend on.
    pub fn in_common(self, other: Self) -> Option<Self> {
        let list_registers = self.list_registers.min(other.list_registers);
        (self.priority_registers == other.priority_registers)
            .then_some(Self { list_registers, ..self })
    }

    /// Empties the list registers, and turns the interface off: once, since what they hold at first is not said.
    pub fn clear(self) {
        // All that this processor has, which may be more.
        (0..Self::read().list_registers).for_each(|number| write_list_register(number, 0));
        // SAFETY: no guest runs.
        unsafe {
            crate::clear_register!("ich_hcr_el2");
            asm!("isb", options(nostack));
        }
    }

    /// Puts a vCPU's registers into the processor, of the list registers the first `used`: the others are empty.
    pub fn load(self, registers: &Registers, used: usize) {
        for (number, value) in registers.lr.iter().enumerate().take(used) {
            write_list_register(number, *value);
        }
        // SAFETY: registers of the guest's, which EL2 itself is not interrupted by but for the maintenance interrupt.
        unsafe {
            crate::write_register!("ich_vmcr_el2", registers.vmcr);
            crate::write_register!("ich_ap0r0_el2", u64::from(registers.ap0r[0]));
            crate::write_register!("ich_ap1r0_el2", u64::from(registers.ap1r[0]));
            if self.priority_registers > 1 {
                crate::write_register!("ich_ap0r1_el2", u64::from(registers.ap0r[1]));
                crate::write_register!("ich_ap1r1_el2", u64::from(registers.ap1r[1]));
            }
            if self.priority_registers > 2 {
                crate::write_register!("ich_ap0r2_el2", u64::from(registers.ap0r[2]));
                crate::write_register!("ich_ap1r2_el2", u64::from(registers.ap1r[2]));
                crate::write_register!("ich_ap0r3_el2", u64::from(registers.ap0r[3]));
                crate::write_register!("ich_ap1r3_el2", u64::from(registers.ap1r[3]));
            }
            crate::write_register!("ich_hcr_el2", registers.hcr);
            asm!("isb", options(nostack));
        }
    }

    /// Takes a vCPU's registers out of the processor, of the list registers the first `used`, which are empty then, and
    /// turns the interface off.
    pub fn save(self, registers: &mut Registers, used: usize) {
        for (number, value) in registers.lr.iter_mut().enumerate().take(used) {
            *value = read_list_register(number);
            write_list_register(number, 0);
        }
        registers.hcr = crate::read_register!("ich_hcr_el2");
        registers.vmcr = crate::read_register!("ich_vmcr_el2");
        registers.ap0r[0] = crate::read_register!("ich_ap0r0_el2") as u32;
        registers.ap1r[0] = crate::read_register!("ich_ap1r0_el2") as u32;
        if self.priority_registers > 1 {
            registers.ap0r[1] = crate::read_register!("ich_ap0r1_el2") as u32;
            registers.ap1r[1] = crate::read_register!("ich_ap1r1_el2") as u32;
        }
        if self.priority_registers > 2 {
            registers.ap0r[2] = crate::read_register!("ich_ap0r2_el2") as u32;
            registers.ap1r[2] = crate::read_register!("ich_ap1r2_el2") as u32;
            registers.ap0r[3] = crate::read_register!("ich_ap0r3_el2") as u32;
            registers.ap1r[3] = crate::read_register!("ich_ap1r3_el2") as u32;
        }
        // SAFETY: as above; without it there is no maintenance interrupt.
        unsafe {
            crate::clear_register!("ich_hcr_el2");
            asm!("isb", options(nostack));
        }
    }
}

macro_rules! list_registers {
    ($($number:literal $name:literal)*) => {
        fn read_list_register(number: usize) -> u64 {
            match number {
                $($number => crate::read_register!($name),)*
                _ => 0,
            }
        }

        fn write_list_register(number: usize, value: u64) {
            // SAFETY: registers of the guest's.
            unsafe {
                match number {
                    $($number => crate::write_register!($name, value),)*
                    _ => {}
                }
            }
        }
    };
}

list_registers! {
    0 "ich_lr0_el2" 1 "ich_lr1_el2" 2 "ich_lr2_el2" 3 "ich_lr3_el2"
    4 "ich_lr4_el2" 5 "ich_lr5_el2" 6 "ich_lr6_el2" 7 "ich_lr7_el2"
    8 "ich_lr8_el2" 9 "ich_lr9_el2" 10 "ich_lr10_el2" 11 "ich_lr11_el2"
    12 "ich_lr12_el2" 13 "ich_lr13_el2" 14 "ich_lr14_el2" 15 "ich_lr15_el2"
}
