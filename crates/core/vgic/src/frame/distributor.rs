//! The distributor: 12.9 of the manual.

use mayfly_platform::sync::{Ordering, fence};

use super::bank::Fields;
use super::{IIDR, Read, Write, identification};
use crate::state::{FIRST_LPI, State};
use crate::vgic::{ALL_GROUPS, PRIVATE, in_parts};
use crate::{Kick, Vgic};

const CTLR: u64 = 0x0000;
const TYPER: u64 = 0x0004;
const IIDR_OFFSET: u64 = 0x0008;
const TYPER2: u64 = 0x000c;
const STATUSR: u64 = 0x0010;
/// `GICD_IROUTER32`. Those of SGIs and PPIs are reserved.
const IROUTER: u64 = 0x6100;

/// Affinity routing is on, and there is one security state; neither can be changed.
const CTLR_FIXED: u64 = 1 << 4 | 1 << 6;
const CTLR_RWP: u64 = 1 << 31;

/// `No1N`: an SPI has one target.
const TYPER_FIXED: u64 = 1 << 25;

/// `IDbits`: interrupt numbers have 10 bits, or 14 where there are LPIs; and how many of these, as a power of two less one.
const fn numbers_in_typer(lpis: usize) -> u64 {
    match lpis {
        0 => 9 << 19,
        lpis => 13 << 19 | 1 << 17 | (lpis.ilog2() as u64 - 1) << 11,
    }
}

/// The SPI that the router register at `offset` is of.
fn routed(offset: u64) -> Option<u32> {
    let spi = offset.checked_sub(IROUTER)? / 8;
    (spi < crate::MAX_SPIS as u64).then(|| PRIVATE + spi as u32)
}

impl<K: Kick> Vgic<K> {
    pub(super) fn read_distributor(&self, caller: usize, offset: u64, len: u64) -> Read {
        if let Some(intid) = routed(offset) {
            let affinity = self.state(0, intid).map_or(0, State::affinity);
            return match (len, offset % 8) {
                (4 | 8, 0) => Read::Value(affinity.into()),
                (4, 4) => Read::Value(0),
                _ => Read::Reserved,
            };
        }
        if let Some(fields) = Fields::at(offset, len) {
            // SGIs and PPIs are the redistributors'.
            return if fields.first < PRIVATE {
                Read::Value(0)
            } else {
                self.read_fields(caller, 0, fields)
            };
        }
        match offset {
            _ if len != 4 => Read::Reserved,
            CTLR => {
                // Of any vCPU: a group that is turned off is so for each.
                let recalled = self.is_any_recalled();
                let groups = u64::from(self.groups.load(Ordering::Acquire));
                Read::Value(CTLR_FIXED | groups | if recalled { CTLR_RWP } else { 0 })
            }
            TYPER => {
                let numbers = numbers_in_typer(self.lpis.len());
                Read::Value(TYPER_FIXED | numbers | self.spis().div_ceil(32) as u64)
            }
            IIDR_OFFSET => Read::Value(IIDR),
            TYPER2 | STATUSR => Read::Value(0),
            _ => identification(offset, 0x92).map_or(Read::Reserved, Read::Value),
        }
    }

    pub(super) fn write_distributor(
        &self,
        offset: u64,
        len: u64,
        value: u64,
        pause: &mut dyn FnMut(),
    ) -> Write {
        if let Some(intid) = routed(offset) {
            return match (len, offset % 8) {
                (4 | 8, 0) => {
                    self.change(0, intid, |state| state.with_affinity(value as u32 & 0xff_ffff));
                    Write::Done
                }
                (4, 4) => Write::Done,
                _ => Write::Reserved,
            };
        }
        if let Some(fields) = Fields::at(offset, len) {
            if fields.first >= PRIVATE {
                self.write_fields(0, fields, value, pause);
            }
            return Write::Done;
        }
        match offset {
            CTLR if len == 4 => {
                self.set_groups(value as u32 & ALL_GROUPS, pause);
                Write::Done
            }
            STATUSR if len == 4 => Write::Done,
            _ => Write::Reserved,
        }
    }

    /// Turns groups on and off. All vCPUs look at everything; from those that are in their guests, what is off now is
    /// taken back.
    fn set_groups(&self, groups: u32, pause: &mut dyn FnMut()) {
        let before = self.groups.swap(groups, Ordering::AcqRel);
        if before == groups {
            return;
        }
        in_parts(self.vcpus(), pause, |vcpu| self.review(vcpu));
        let off = before & !groups;
        if off == 0 {
            return;
        }
        let recall = |vcpu, intid| {
            self.change(vcpu, intid, |state| if state.is_in(off) { state.recall() } else { state });
        };
        // Pairs with the fence of a vCPU that enters, between what it loads and its look at the groups.
        fence(Ordering::SeqCst);
        in_parts(self.vcpus(), pause, |vcpu| (0..PRIVATE).for_each(|intid| recall(vcpu, intid)));
        in_parts(self.spis(), pause, |spi| recall(0, PRIVATE + spi as u32));
        in_parts(self.lpis.len(), pause, |lpi| recall(0, FIRST_LPI + lpi as u32));
    }
}
