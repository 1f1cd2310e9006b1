//! The APICs of a VM: what all vCPUs and devices share of them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::CacheLine;

use crate::ioapic::Ioapic;
use crate::local::LocalApic;
use crate::mailbox::Mailbox;
use crate::{Error, MAX_VCPUS};

/// How a vCPU is told that there is something new for it.
pub trait Kick {
    /// Has vCPU `vcpu` come out of its guest if it is in it, and wakes it if it sleeps (in a HLT, or until its start-up). It
    /// then looks at [`Vapic::is_stale`] before it goes into its guest.
    ///
    /// Called by the thread that sends: a vCPU's or a device's. It is `vcpu`'s own only in [`Vapic::write_ioapic`] and
    /// [`Vapic::set_line`], which do not know who calls them. No lock of this crate's is held.
    /// It does not wait for the vCPU. May be called for a vCPU that is not running.
    fn kick(&self, vcpu: usize);

    /// Called while a message goes to many vCPUs, after each [`PART`](crate::PART) of them, for a caller that has
    /// interrupts masked, and looks for them now and then. It may call any method of the [`Vapic`], each of which may send
    /// to many vCPUs, and pause itself: the embedder says how deep that goes.
    fn pause(&self) {}
}

impl<F: Fn(usize)> Kick for F {
    fn kick(&self, vcpu: usize) {
        self(vcpu);
    }
}

/// What the APICs of a VM are like.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many vCPUs: 1 to [`MAX_VCPUS`]. The APIC ID of each is its number, and vCPU 0 is the boot processor.
    pub vcpus: usize,
    /// Whether there is an x2APIC mode (`CPUID.1:ECX[21]`).
    pub x2apic: bool,
    /// Whether the timer takes a deadline of the time-stamp counter (`CPUID.1:ECX[24]`).
    pub tsc_deadline: bool,
    /// How many bits a guest physical address has (`CPUID.8000_0008H:EAX[7:0]`): 32 to 52.
    pub physical_bits: u32,
}

/// The local APICs and the IOAPIC of one VM. Shared by all vCPUs, and by all devices; no method waits.
#[derive(Debug)]
pub struct Vapic<K> {
    pub(crate) mailboxes: Box<[CacheLine<Mailbox>]>,
    pub(crate) ioapic: Ioapic,
    pub(crate) config: Config,
    pub(crate) kick: K,
}

impl<K: Kick> Vapic<K> {
    /// APICs as at power-on: each local APIC is in xAPIC mode, disabled by its `SVR`, and all pins of the IOAPIC are masked.
    ///
    /// # Errors
    ///
    /// [`Error`] says which number is out of bounds; or there is no memory.
    pub fn try_new(config: Config, kick: K) -> Result<Self, Error> {
        if !(1..=MAX_VCPUS).contains(&config.vcpus) {
            return Err(Error::Vcpus(config.vcpus));
        }
        if !(32..=52).contains(&config.physical_bits) {
            return Err(Error::PhysicalBits(config.physical_bits));
        }
        let mut mailboxes = Vec::new();
        mailboxes.try_reserve_exact(config.vcpus).map_err(OutOfMemory::from)?;
        mailboxes.extend((0..config.vcpus).map(|_| CacheLine(Mailbox::new())));
        Ok(Self { mailboxes: mailboxes.into_boxed_slice(), ioapic: Ioapic::new(), config, kick })
    }

    /// How many vCPUs it has.
    pub fn vcpus(&self) -> usize {
        self.mailboxes.len()
    }

    /// The local APIC of vCPU `vcpu` as at power-on. A vCPU has one, until [`Vapic::reset`]. `None` where there is no such
    /// vCPU.
    pub fn local_apic(&self, vcpu: usize) -> Option<LocalApic> {
        (vcpu < self.vcpus()).then(|| LocalApic::new(vcpu))
    }

    /// As at power-on, for a VM that begins anew: only while no other thread uses it. Lines stay as they were driven. Each
    /// vCPU takes a new [`Vapic::local_apic`].
    pub fn reset(&self) {
        for mailbox in &*self.mailboxes {
            mailbox.reset();
        }
        self.ioapic.reset();
    }

    /// Whether there is something new for a vCPU. Looked at with interrupts masked right before it goes into its guest: if
    /// so, it does not go, and calls [`Vapic::look`] first. (What comes after that kicks, and the kick's interrupt brings
    /// it out again at once.)
    pub fn is_stale(&self, vcpu: usize) -> bool {
        self.mailboxes.get(vcpu).is_some_and(|mailbox| mailbox.has_notice())
    }

    /// The mailbox of a vCPU whose local APIC this has made. One that another has made is taken for vCPU 0's, if it is no
    /// vCPU's here: nothing panics.
    pub(crate) fn own(&self, apic: &LocalApic) -> &Mailbox {
        self.mailboxes.get(apic.vcpu).unwrap_or(&self.mailboxes[0])
    }
}
