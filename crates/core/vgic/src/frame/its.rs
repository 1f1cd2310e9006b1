//! The ITS: 12.19 of the manual. The second of its frames has the register that devices write to (`GITS_TRANSLATER`),
//! which a write of a vCPU's does not reach: it names no device.

use mayfly_platform::sync::Ordering;

use super::{IIDR, Read, Write, half, identification, with_half};
use crate::its::tables::Its;
use crate::its::work::{VALID, queue_bytes};
use crate::{ITS_SIZE, Kick, Vgic};

const CTLR: u64 = 0x0000;
const IIDR_OFFSET: u64 = 0x0004;
const TYPER: u64 = 0x0008;
const CBASER: u64 = 0x0080;
const CWRITER: u64 = 0x0088;
const CREADR: u64 = 0x0090;
/// `GITS_BASER0` to `GITS_BASER7`.
const BASER: u64 = 0x0100;
const TRANSLATER: u64 = 0x1_0040;

const CTLR_ENABLED: u64 = 1 << 0;
const CTLR_QUIESCENT: u64 = 1 << 31;

/// Physical LPIs, an entry of 8 bytes for each event, and numbers of collections of fewer than 16 bits (`CIL`).
const TYPER_FIXED: u64 = 1 << 0 | 7 << 4 | 1 << 36;

/// The bits of `GITS_CBASER`: valid, cacheability, address, shareability and size.
pub(crate) const CBASER_BITS: u64 =
    VALID | 7 << 59 | 7 << 53 | 0xf_ffff_ffff << 12 & 0xf_ffff_ffff_f000 | 3 << 10 | 0xff;
/// The bits of `GITS_BASERn` that are written: the same ones. Tables are flat.
pub(crate) const BASER_BITS: u64 = VALID | 7 << 59 | 7 << 53 | 0xffff_ffff_f000 | 3 << 10 | 0xff;
/// Entries of 8 bytes, pages of 64 KiB; and the kind of table, devices or collections.
const BASER_FIXED: u64 = 7 << 48 | 2 << 8;
const BASER_KINDS: [u64; 2] = [1 << 56, 4 << 56];
/// What says of `GITS_BASERn` that it is another table.
const BASER_TABLE: u64 = VALID | 0xffff_ffff_f000;

/// The offset of a command.
pub(crate) const OFFSET: u64 = 0xf_ffe0;

impl<K: Kick> Vgic<K> {
    pub(super) fn read_its(&self, offset: u64, len: u64) -> Read {
        let Some(its) = self.its.as_ref().filter(|_| offset < ITS_SIZE) else {
            return Read::Reserved;
        };
        if len == 1 {
            return Read::Reserved;
        }
        let register = match offset / 8 * 8 {
            TYPER => typer(its),
            CBASER => its.cbaser.load(Ordering::Relaxed),
            CWRITER => its.cwriter.load(Ordering::Relaxed),
            // Acquire, pairing with the release after a command's effect.
            CREADR => its.creadr.load(Ordering::Acquire),
            at @ BASER..0x140 => match table(at) {
                Some(table) => {
                    let written = its.basers[table].load(Ordering::Relaxed);
                    written | BASER_FIXED | BASER_KINDS[table]
                }
                None => 0,
            },
            _ => return Self::read_its_word(its, offset, len),
        };
        Read::Value(half(register, offset, len))
    }

    fn read_its_word(its: &Its, offset: u64, len: u64) -> Read {
        if len != 4 {
            return Read::Reserved;
        }
        match offset {
            CTLR => {
                let enabled = u64::from(its.enabled.load(Ordering::Acquire));
                let quiescent = if its.is_quiescent() { CTLR_QUIESCENT } else { 0 };
                Read::Value(enabled | quiescent)
            }
            IIDR_OFFSET => Read::Value(IIDR),
            // What is written there is not read.
            TRANSLATER => Read::Reserved,
            _ => identification(offset, 0x94).map_or(Read::Reserved, Read::Value),
        }
    }

    pub(super) fn write_its(
        &self,
        offset: u64,
        len: u64,
        value: u64,
        pause: &mut dyn FnMut(),
    ) -> Write {
        let Some(its) = self.its.as_ref().filter(|_| offset < ITS_SIZE && len != 1) else {
            return Write::Reserved;
        };
        let written = |old: u64| with_half(old, offset, len, value);
        let is_on = its.enabled.load(Ordering::Acquire) != 0;
        match offset / 8 * 8 {
            // The manual has none of these written while the ITS is on, and they do not change then.
            CBASER | BASER..0x140 if is_on => {}
            CBASER => {
                let old = its.cbaser.load(Ordering::Relaxed);
                // A queue begins at its beginning, and is empty.
                its.cwriter.store(0, Ordering::Relaxed);
                its.creadr.store(0, Ordering::Relaxed);
                its.cbaser.store(written(old) & CBASER_BITS, Ordering::Release);
            }
            CWRITER => {
                let end = written(its.cwriter.load(Ordering::Relaxed)) & OFFSET;
                if end < queue_bytes(its.cbaser.load(Ordering::Acquire)) {
                    its.cwriter.store(end, Ordering::Release);
                    its.has_work();
                }
            }
            at @ BASER..0x140 => {
                if let Some(table) = table(at) {
                    let old = its.basers[table].load(Ordering::Relaxed);
                    let new = written(old) & BASER_BITS;
                    its.basers[table].store(new, Ordering::Release);
                    if (old ^ new) & BASER_TABLE != 0 {
                        its.forget(table, pause);
                    }
                }
            }
            CREADR => {}
            _ if (offset, len) == (CTLR, 4) => {
                its.enabled.store((value & CTLR_ENABLED) as u32, Ordering::Release);
                its.has_work();
            }
            _ if (offset, len) == (TRANSLATER, 4) => {}
            _ => return Write::Reserved,
        }
        Write::Done
    }
}

/// The table of the `GITS_BASERn` at an offset, if there is one.
fn table(offset: u64) -> Option<usize> {
    let table = ((offset - BASER) / 8) as usize;
    (table < BASER_KINDS.len()).then_some(table)
}

fn typer(its: &Its) -> u64 {
    TYPER_FIXED
        | u64::from(its.config.event_bits - 1) << 8
        | u64::from(its.config.device_bits - 1) << 13
        | u64::from(its.collection_bits() - 1) << 32
}
