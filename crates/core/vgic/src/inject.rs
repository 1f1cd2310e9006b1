//! Interrupts from outside, and from vCPU to vCPU.

use crate::state::{FIRST_LPI, State};
use crate::vgic::{PRIVATE, in_parts};
use crate::{Kick, NoSuchInterrupt, PART, Vgic, affinity};

/// The group that an SGI is generated for, which is that of the register it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SgiRegister {
    /// `ICC_SGI1R_EL1`: interrupts of either group, since there is one security state.
    Sgi1,
    /// `ICC_SGI0R_EL1` and `ICC_ASGI1R_EL1`: interrupts of group 0 alone.
    Sgi0,
}

const fn is_ppi(intid: u32) -> bool {
    matches!(intid, 16..=31)
}

/// Whether it may be that of an SPI.
const fn is_spi(intid: u32) -> bool {
    matches!(intid, PRIVATE..FIRST_LPI)
}

impl<K: Kick> Vgic<K> {
    fn inject(
        &self,
        vcpu: usize,
        intid: u32,
        exists: bool,
        step: impl Fn(State) -> State,
    ) -> Result<(), NoSuchInterrupt> {
        let changed = if exists { self.change(vcpu, intid, step) } else { None };
        changed.map(|_| ()).ok_or(NoSuchInterrupt { vcpu, intid })
    }

    /// Drives the line of SPI `intid` (32 and above).
    ///
    /// # Errors
    ///
    /// There is no such SPI.
    pub fn set_spi(&self, intid: u32, high: bool) -> Result<(), NoSuchInterrupt> {
        self.inject(0, intid, is_spi(intid), |state| state.with_line(high))
    }

    /// An edge of SPI `intid`. A level-sensitive one sees nothing of it.
    ///
    /// # Errors
    ///
    /// There is no such SPI.
    pub fn pulse_spi(&self, intid: u32) -> Result<(), NoSuchInterrupt> {
        self.inject(
            0,
            intid,
            is_spi(intid),
            |state| {
                if state.is_edge() { state.latched() } else { state }
            },
        )
    }

    /// Drives the line of PPI `intid` (16 to 31) of a vCPU. Nothing of a linked one, whose line is hardware's.
    ///
    /// # Errors
    ///
    /// There is no such PPI, or no such vCPU.
    pub fn set_ppi(&self, vcpu: usize, intid: u32, high: bool) -> Result<(), NoSuchInterrupt> {
        self.inject(vcpu, intid, is_ppi(intid), |state| {
            if state.is_hardware() { state } else { state.with_line(high) }
        })
    }

    /// The physical interrupt that PPI `intid` of a vCPU is linked to was taken, and is active: each time, for it comes
    /// again only after its deactivation.
    ///
    /// # Errors
    ///
    /// There is no such PPI, it is not linked, or there is no such vCPU.
    pub fn take_linked(&self, vcpu: usize, intid: u32) -> Result<(), NoSuchInterrupt> {
        self.inject(vcpu, intid, self.link(intid) != 0, State::taken)
    }

    /// The line of the physical interrupt that PPI `intid` of a vCPU is linked to has fallen since it was taken: its timer
    /// was turned off, or set to another time. To be looked at before the vCPU's registers are read, and before it
    /// enters. What the guest has made pending by a register stays so.
    ///
    /// # Errors
    ///
    /// There is no such PPI, it is not linked, or there is no such vCPU.
    pub fn withdraw_linked(&self, vcpu: usize, intid: u32) -> Result<(), NoSuchInterrupt> {
        self.inject(vcpu, intid, self.link(intid) != 0, State::withdrawn)
    }

    /// The guest has written `value` to a register that generates SGIs, on vCPU `sender`. Targets that there are not are
    /// left out.
    pub fn sgi(&self, sender: usize, register: SgiRegister, value: u64) {
        self.sgi_with_pauses(sender, register, value, &mut || {});
    }

    /// As [`Vgic::sgi`]. `pause` is called after each [`PART`] of the vCPUs, for a caller that has interrupts
    /// masked, and looks for them now and then. Nothing of the GIC is half done then: `pause` may call any of its methods.
    pub fn sgi_with_pauses(
        &self,
        sender: usize,
        register: SgiRegister,
        value: u64,
        pause: &mut dyn FnMut(),
    ) {
        let intid = (value >> 24 & 0xf) as u32;
        if value >> 40 & 1 != 0 {
            in_parts(self.vcpus(), pause, |target| {
                if target != sender {
                    self.send(target, register, intid);
                }
            });
            return;
        }
        // `RS` would name the cluster's next 16, which it has not.
        if value >> 44 & 0xf != 0 || value >> 48 & 0xff != 0 {
            return;
        }
        let cluster = ((value >> 32 & 0xff) << 16 | (value >> 16 & 0xff) << 8) as u32;
        for aff0 in 0..16 {
            if aff0 as usize == PART {
                pause();
            }
            if value >> aff0 & 1 != 0
                && let Some(target) = affinity::index(cluster | aff0)
            {
                self.send(target, register, intid);
            }
        }
    }

    fn send(&self, target: usize, register: SgiRegister, intid: u32) {
        self.change(target, intid, |state| {
            let wrong = register == SgiRegister::Sgi0 && state.is_group1();
            if wrong { state } else { state.latched() }
        });
    }

    /// The guest has written `intid` to `ICC_DIR_EL1`, which traps, on vCPU `vcpu`. What it has not is ignored.
    pub fn deactivate(&self, vcpu: usize, intid: u32) {
        // LPIs have no active state.
        if intid < FIRST_LPI {
            self.change(vcpu, intid, State::deactivated);
        }
    }
}
