//! The registers in the guest's memory: the distributor's frame, and two a redistributor (Arm IHI 0069, chapter 12).

mod bank;
mod distributor;
mod its;
mod redistributor;

pub(crate) use its::{BASER_BITS, CBASER_BITS, OFFSET};

use crate::{Kick, Vgic};

/// The bytes of the distributor's frame.
pub const DISTRIBUTOR_SIZE: u64 = 0x1_0000;

/// The bytes of a redistributor, which are two frames. Those of all vCPUs follow each other in the order of their numbers.
pub const REDISTRIBUTOR_SIZE: u64 = 0x2_0000;

/// The bytes of an ITS, which are two frames: its registers, and the one for the writes of devices.
pub const ITS_SIZE: u64 = 0x2_0000;

/// Which registers are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The distributor's.
    Distributor,
    /// Those of all redistributors, from the first byte of the first.
    Redistributors,
    /// The ITS's. A GIC without one has none.
    Its,
}

/// What a read gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The register's value.
    Value(u64),
    /// There is no such register, or it is not read so: the guest reads zero.
    Reserved,
    /// A vCPU that is in its guest has the value, and is kicked. Have the access made again: enter the guest at the same
    /// instruction. (It may be the vCPU that reads, which is stale then, as [`Vgic::is_stale`] says.)
    Retry,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It is done. What it changes of a running vCPU takes effect when that has come out, for which it is kicked; the
    /// guest sees by `RWP` when an interrupt that it has disabled is taken no more.
    Done,
    /// There is no such register, or it is not written, or not so: the write is ignored.
    Reserved,
}

/// A 64-bit register, or the half of it that an access of `len` bytes at `offset` is to.
const fn half(register: u64, offset: u64, len: u64) -> u64 {
    match (len, offset % 8) {
        (8, _) => register,
        (_, 0) => register & 0xffff_ffff,
        _ => register >> 32,
    }
}

/// The register with what such an access writes.
const fn with_half(register: u64, offset: u64, len: u64, value: u64) -> u64 {
    match (len, offset % 8) {
        (8, _) => value,
        (_, 0) => register & !0xffff_ffff | value & 0xffff_ffff,
        _ => register & 0xffff_ffff | value << 32,
    }
}

/// The identification registers, from 0xffd0 on, a byte each: a `GICv3` (`PIDR2.ArchRev`), as Arm's GIC-500 has them.
fn identification(offset: u64, part: u8) -> Option<u64> {
    let index = offset.checked_sub(0xffd0)? / 4;
    let bytes = [0x44, 0, 0, 0, part, 0xb4, 0x3b, 0, 0x0d, 0xf0, 0x05, 0xb1];
    bytes.get(index as usize).map(|byte| u64::from(*byte))
}

/// Implementer Arm, as all virtual GICs say, and a product that is no thread's.
const IIDR: u64 = 0x4d00_043b;

impl<K: Kick> Vgic<K> {
    /// The guest reads `len` bytes at `offset` into a frame, on vCPU `caller`.
    pub fn read(&self, caller: usize, frame: Frame, offset: u64, len: u64) -> Read {
        if !matches!(len, 1 | 4 | 8) || !offset.is_multiple_of(len) {
            return Read::Reserved;
        }
        match frame {
            Frame::Distributor => self.read_distributor(caller, offset, len),
            Frame::Redistributors => {
                let (vcpu, offset) = (offset / REDISTRIBUTOR_SIZE, offset % REDISTRIBUTOR_SIZE);
                match usize::try_from(vcpu) {
                    Ok(vcpu) if vcpu < self.vcpus() => {
                        self.read_redistributor(caller, vcpu, offset, len)
                    }
                    _ => Read::Reserved,
                }
            }
            Frame::Its => self.read_its(offset, len),
        }
    }

    /// The guest writes `len` bytes, the low ones of `value`, at `offset` into a frame.
    pub fn write(&self, frame: Frame, offset: u64, len: u64, value: u64) -> Write {
        self.write_with_pauses(frame, offset, len, value, &mut || {})
    }

    /// As [`Vgic::write`]. A write that concerns many vCPUs or interrupts calls `pause` after each
    /// [`PART`](crate::PART) of them, for a caller that has interrupts masked, and looks for them now and then. `pause`
    /// may call any method of the GIC.
    pub fn write_with_pauses(
        &self,
        frame: Frame,
        offset: u64,
        len: u64,
        value: u64,
        pause: &mut dyn FnMut(),
    ) -> Write {
        if !matches!(len, 1 | 4 | 8) || !offset.is_multiple_of(len) {
            return Write::Reserved;
        }
        match frame {
            Frame::Distributor => self.write_distributor(offset, len, value, pause),
            Frame::Redistributors => {
                let (vcpu, offset) = (offset / REDISTRIBUTOR_SIZE, offset % REDISTRIBUTOR_SIZE);
                match usize::try_from(vcpu) {
                    Ok(vcpu) if vcpu < self.vcpus() => {
                        self.write_redistributor(vcpu, offset, len, value, pause)
                    }
                    _ => Write::Reserved,
                }
            }
            Frame::Its => self.write_its(offset, len, value, pause),
        }
    }
}
