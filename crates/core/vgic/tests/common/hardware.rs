//! The virtual CPU interface of a `GICv3`, as far as a guest's use of list registers goes (Arm IHI 0069, 6.3 and 12.4).

use mayfly_vgic::Registers;

const PENDING: u64 = 1 << 62;
const ACTIVE: u64 = 1 << 63;
const HARDWARE: u64 = 1 << 61;
const EOI: u64 = 1 << 41;
const FIRST_LPI: u32 = 8192;

pub(crate) fn intid(register: u64) -> u32 {
    register as u32
}

fn priority(register: u64) -> u8 {
    (register >> 48) as u8
}

fn group(register: u64) -> u32 {
    (register >> 60 & 1) as u32
}

/// What the guest's instructions do to the registers.
pub(crate) struct Cpu<'a>(pub(crate) &'a mut Registers);

impl Cpu<'_> {
    pub(crate) fn running_priority(&self) -> u8 {
        let active = self.0.ap0r[0] | self.0.ap1r[0];
        if active == 0 { 0xff } else { (active.trailing_zeros() * 8) as u8 }
    }

    /// The list register of what the guest would be given.
    fn best(&self) -> Option<usize> {
        let vmcr = self.0.vmcr;
        (0..self.0.lr.len())
            .filter(|index| {
                let register = self.0.lr[*index];
                register & (PENDING | ACTIVE) == PENDING
                    && vmcr >> group(register) & 1 != 0
                    && u64::from(priority(register)) < vmcr >> 24 & 0xff
                    && priority(register) < self.running_priority()
            })
            .min_by_key(|index| priority(self.0.lr[*index]))
    }

    pub(crate) fn best_priority(&self) -> Option<u8> {
        self.best().map(|index| priority(self.0.lr[index]))
    }

    /// `ICC_IAR0_EL1`, or `ICC_IAR1_EL1`.
    pub(crate) fn acknowledge(&mut self) -> Option<u32> {
        let index = self.best()?;
        let register = &mut self.0.lr[index];
        // LPIs have no active state.
        let active = if intid(*register) < FIRST_LPI { ACTIVE } else { 0 };
        *register ^= PENDING | active;
        let level = 1 << (priority(*register) / 8);
        if group(*register) == 0 {
            self.0.ap0r[0] |= level;
        } else {
            self.0.ap1r[0] |= level;
        }
        Some(intid(self.0.lr[index]))
    }

    /// `ICC_EOIR0_EL1`, or `ICC_EOIR1_EL1`; with `EOImode` 1, the priority alone is dropped.
    pub(crate) fn end(&mut self, ended: u32) {
        let active = self.0.ap0r[0] | self.0.ap1r[0];
        let highest = active & active.wrapping_neg();
        self.0.ap0r[0] &= !highest;
        self.0.ap1r[0] &= !highest;
        if active == 0 || self.0.vmcr >> 9 & 1 != 0 {
            return;
        }
        let entry = self
            .0
            .lr
            .iter_mut()
            .find(|register| intid(**register) == ended && **register & ACTIVE != 0);
        match entry {
            Some(register) => *register &= !ACTIVE,
            None if ended < FIRST_LPI => self.0.hcr += 1 << 27,
            None => {}
        }
    }

    /// Whether it asks for maintenance (`ICH_MISR_EL2`).
    pub(crate) fn wants_maintenance(&self) -> bool {
        let (hcr, vmcr) = (self.0.hcr, self.0.vmcr);
        let states = self.0.lr.map(|register| register & (PENDING | ACTIVE));
        let ended =
            self.0.lr.iter().any(|register| {
                register & (PENDING | ACTIVE | HARDWARE) == 0 && register & EOI != 0
            });
        let groups = (0..2).any(|group| {
            let on = vmcr >> group & 1 != 0;
            on && hcr >> (4 + 2 * group) & 1 != 0 || !on && hcr >> (5 + 2 * group) & 1 != 0
        });
        ended
            || groups
            || hcr >> 1 & 1 != 0 && states.iter().filter(|state| **state != 0).count() < 2
            || hcr >> 2 & 1 != 0 && hcr >> 27 != 0
            || hcr >> 3 & 1 != 0 && !states.contains(&PENDING)
    }

    /// What is never so: an interrupt in two registers, or one that is linked pending and active at once.
    pub(crate) fn check(&self) {
        let valid: Vec<u64> = self
            .0
            .lr
            .iter()
            .copied()
            .filter(|register| register & (PENDING | ACTIVE) != 0)
            .collect();
        for (index, register) in valid.iter().enumerate() {
            let twice = valid[..index].iter().any(|other| intid(*other) == intid(*register));
            assert!(!twice, "interrupt {} is in two list registers", intid(*register));
            let both = register & (PENDING | ACTIVE) == PENDING | ACTIVE;
            assert!(!both || register & HARDWARE == 0, "{register:#x}");
        }
    }
}
