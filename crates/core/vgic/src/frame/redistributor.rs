//! A redistributor: 12.11 of the manual. The first of its frames is its own, the second that of its SGIs and PPIs.

use mayfly_platform::sync::Ordering;

use super::bank::Fields;
use super::{IIDR, Read, Write, half, identification, with_half};
use crate::vgic::PRIVATE;
use crate::{Kick, Vgic, affinity};

const CTLR: u64 = 0x0000;
const IIDR_OFFSET: u64 = 0x0004;
const TYPER: u64 = 0x0008;
const STATUSR: u64 = 0x0010;
const WAKER: u64 = 0x0014;
const PROPBASER: u64 = 0x0070;
const PENDBASER: u64 = 0x0078;
const SYNCR: u64 = 0x00c0;
const SGI_FRAME: u64 = 0x1_0000;

const CTLR_RWP: u64 = 1 << 3;
const TYPER_LAST: u64 = 1 << 4;
/// `PLPIS`; that all redistributors have one table of properties is what zero says.
const TYPER_LPIS: u64 = 1 << 0;
/// Of `GICR_CTLR`: LPIs are on, and can be turned off again (`CES`).
const CTLR_ENABLE_LPIS: u64 = 1 << 0;
const CTLR_CLEARABLE: u64 = 1 << 1;
const PROCESSOR_SLEEP: u64 = 1 << 1;
const CHILDREN_ASLEEP: u64 = 1 << 2;

impl<K: Kick> Vgic<K> {
    pub(super) fn read_redistributor(
        &self,
        caller: usize,
        vcpu: usize,
        offset: u64,
        len: u64,
    ) -> Read {
        if let Some(offset) = offset.checked_sub(SGI_FRAME) {
            return match Fields::at(offset, len) {
                Some(fields) if fields.first < PRIVATE => self.read_fields(caller, vcpu, fields),
                _ => Read::Reserved,
            };
        }
        let last = if vcpu + 1 == self.vcpus() { TYPER_LAST } else { 0 };
        let lpis = if self.its.is_some() { TYPER_LPIS } else { 0 };
        let typer = affinity(vcpu) << 32 | (vcpu as u64) << 8 | last | lpis;
        match (offset, len) {
            (TYPER, 8) => Read::Value(typer),
            (TYPER, 4) => Read::Value(typer & 0xffff_ffff),
            (0x000c, 4) => Read::Value(typer >> 32),
            (CTLR, 4) => {
                let own = &self.redistributors[vcpu].lpis;
                let recalled = self.is_recalled(vcpu) || own.is_stopping();
                let enabled = if own.accepts() { CTLR_ENABLE_LPIS } else { 0 };
                let clearable = if self.its.is_some() { CTLR_CLEARABLE } else { 0 };
                Read::Value(enabled | clearable | if recalled { CTLR_RWP } else { 0 })
            }
            (PROPBASER | PENDBASER, 8) | (0x0070..0x0080, 4) if self.its.is_some() => {
                let value = self.read_table(vcpu, offset >= PENDBASER);
                Read::Value(half(value, offset, len))
            }
            (SYNCR, 4) if self.its.is_some() => Read::Value(0),
            (IIDR_OFFSET, 4) => Read::Value(IIDR),
            (STATUSR, 4) => Read::Value(0),
            (WAKER, 4) => {
                let asleep = self.redistributors[vcpu].asleep.load(Ordering::Acquire) != 0;
                Read::Value(if asleep { PROCESSOR_SLEEP | CHILDREN_ASLEEP } else { 0 })
            }
            (_, 4) => identification(offset, 0x93).map_or(Read::Reserved, Read::Value),
            _ => Read::Reserved,
        }
    }

    pub(super) fn write_redistributor(
        &self,
        vcpu: usize,
        offset: u64,
        len: u64,
        value: u64,
        pause: &mut dyn FnMut(),
    ) -> Write {
        if let Some(offset) = offset.checked_sub(SGI_FRAME) {
            return match Fields::at(offset, len) {
                Some(fields) if fields.first < PRIVATE => {
                    self.write_fields(vcpu, fields, value, pause);
                    Write::Done
                }
                _ => Write::Reserved,
            };
        }
        match (offset, len) {
            (WAKER, 4) => {
                let asleep = u32::from(value & PROCESSOR_SLEEP != 0);
                if self.redistributors[vcpu].asleep.swap(asleep, Ordering::AcqRel) != asleep {
                    self.review(vcpu);
                }
                Write::Done
            }
            (CTLR, 4) => {
                self.enable_lpis(vcpu, value & CTLR_ENABLE_LPIS != 0);
                Write::Done
            }
            (PROPBASER | PENDBASER, 8) | (0x0070..0x0080, 4) if self.its.is_some() => {
                self.write_table(vcpu, offset >= PENDBASER, |old| {
                    with_half(old, offset, len, value)
                });
                Write::Done
            }
            // No errors to clear.
            (STATUSR, 4) => Write::Done,
            _ => Write::Reserved,
        }
    }
}
