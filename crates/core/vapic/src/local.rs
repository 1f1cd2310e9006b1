//! What of a local APIC belongs to its vCPU's thread.

pub(crate) mod access;
pub(crate) mod msr;
pub(crate) mod page;
pub(crate) mod register;

use crate::address::{Address, Mode};
use crate::lvt;
use crate::timer::{Deadline, Timer};
use crate::vectors::{highest, place};

/// Bits of `ESR` (Intel SDM volume 3, 11.5.3; AMD APM volume 2, 16.4.6).
pub(crate) mod error {
    pub(crate) const SEND_ILLEGAL_VECTOR: u32 = 1 << 5;
    pub(crate) const RECEIVE_ILLEGAL_VECTOR: u32 = 1 << 6;
    pub(crate) const ILLEGAL_REGISTER: u32 = 1 << 7;
}

/// Bit 8 of `SVR`.
pub(crate) const ENABLED: u32 = 1 << 8;

/// Where the page of registers is after reset.
const PAGE: u64 = 0xfee0_0000;

/// A vCPU's side of its local APIC. Belongs to the vCPU's thread.
#[derive(Clone, Debug)]
pub struct LocalApic {
    pub(crate) vcpu: usize,
    pub(crate) address: Address,
    /// Where the page is, in `IA32_APIC_BASE`.
    pub(crate) page: u64,
    pub(crate) tpr: u8,
    pub(crate) svr: u32,
    pub(crate) isr: [u32; 8],
    pub(crate) icr: u64,
    pub(crate) lvt: [u32; lvt::ENTRIES],
    pub(crate) timer: Timer,
    /// `ESR` as it reads, and what has come since it was written.
    pub(crate) esr: u32,
    pub(crate) errors: u32,
    /// It waits for its start-up.
    pub(crate) waits: bool,
}

impl LocalApic {
    pub(crate) fn new(vcpu: usize) -> Self {
        Self {
            vcpu,
            address: Address::RESET,
            page: PAGE,
            tpr: 0,
            svr: 0xff,
            isr: [0; 8],
            icr: 0,
            lvt: [lvt::MASKED; lvt::ENTRIES],
            timer: Timer::RESET,
            esr: 0,
            errors: 0,
            waits: vcpu != 0,
        }
    }

    /// As after INIT, or after it was off: all but `IA32_APIC_BASE` (Intel SDM volume 3, 11.4.7.3 and 11.12.5).
    pub(crate) fn init(&mut self) {
        let Address { mode, life, .. } = self.address;
        let address = Address { mode, life, ..Address::RESET };
        *self = Self { address, page: self.page, waits: self.waits, ..Self::new(self.vcpu) };
    }

    /// The vCPU whose it is. Its APIC ID is this number.
    pub const fn vcpu(&self) -> usize {
        self.vcpu
    }

    pub(crate) const fn id(&self) -> u32 {
        self.vcpu as u32
    }

    /// Whether it is off, or where its registers are.
    pub const fn mode(&self) -> Mode {
        self.address.mode
    }

    /// The guest physical address of its page of registers, of 4 KiB, which is there in xAPIC mode alone. It lies over
    /// whatever else has this address, for this vCPU.
    pub const fn page(&self) -> Option<u64> {
        match self.address.mode {
            Mode::Xapic => Some(self.page),
            Mode::Disabled | Mode::X2apic => None,
        }
    }

    /// Whether the vCPU does nothing until its start-up comes: so do all but vCPU 0 at first.
    pub const fn waits_for_startup(&self) -> bool {
        self.waits
    }

    /// When [`Vapic::look`](crate::Vapic::look) has to be called at the latest, for its timer. `None` if that makes no
    /// difference.
    pub const fn deadline(&self) -> Option<Deadline> {
        if self.lvt[lvt::TIMER] & lvt::MASKED != 0 || self.waits { None } else { self.timer.next() }
    }

    /// `CR8`: the upper four bits of the task priority.
    pub const fn cr8(&self) -> u8 {
        self.tpr >> 4
    }

    /// The upper four bits of the priority of what runs, apart from the task priority.
    pub(crate) fn in_service(&self) -> u8 {
        highest(&self.isr).map_or(0, |vector| vector >> 4)
    }

    /// `PPR` (Intel SDM volume 3, 11.8.3.1; AMD APM volume 2, 16.6.4).
    pub(crate) fn ppr(&self) -> u8 {
        let in_service = self.in_service();
        if self.cr8() >= in_service { self.tpr } else { in_service << 4 }
    }

    /// Takes an interrupt into service.
    pub(crate) fn begin(&mut self, vector: u8) {
        let (word, bit) = place(vector);
        self.isr[word] |= bit;
    }

    /// Ends the interrupt of the highest priority that is in service, if one is.
    pub(crate) fn end(&mut self) -> Option<u8> {
        let vector = highest(&self.isr)?;
        let (word, bit) = place(vector);
        self.isr[word] &= !bit;
        Some(vector)
    }
}
