//! Registers with a field an interrupt, which distributor and redistributor have at the same offsets.

use mayfly_platform::sync::{AtomicU64, Ordering};

use super::Read;
use crate::state::State;
use crate::{Kick, PART, Vgic};

/// What the bits of a register say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bank {
    /// A bit an interrupt.
    Bits(Bit),
    /// A byte an interrupt.
    Priority,
    /// Two bits an interrupt, of which the upper one says that it is edge-triggered.
    Trigger,
}

/// What a bit says when it is read, and what one that is written as one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bit {
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
}

/// A register of a bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) bank: Bank,
    /// The interrupt of its lowest field.
    pub(super) first: u32,
    /// How many it has.
    pub(super) count: u32,
}

impl Fields {
    /// The register of a bank at `offset`, for an access of `len` bytes.
    pub(super) fn at(offset: u64, len: u64) -> Option<Self> {
        let bits =
            |bit| Self { bank: Bank::Bits(bit), first: (offset % 0x80) as u32 * 8, count: 32 };
        let fields = match offset {
            0x080..0x100 => bits(Bit::Group),
            0x100..0x180 => bits(Bit::SetEnable),
            0x180..0x200 => bits(Bit::ClearEnable),
            0x200..0x280 => bits(Bit::SetPending),
            0x280..0x300 => bits(Bit::ClearPending),
            0x300..0x380 => bits(Bit::SetActive),
            0x380..0x400 => bits(Bit::ClearActive),
            0x400..0x800 => {
                let first = (offset - 0x400) as u32;
                Self { bank: Bank::Priority, first, count: len as u32 }
            }
            0xc00..0xd00 => {
                let first = (offset - 0xc00) as u32 * 4;
                Self { bank: Bank::Trigger, first, count: 16 }
            }
            _ => return None,
        };
        // Priorities are bytes, too; nothing here has 64 bits.
        (len == 4 || len == 1 && fields.bank == Bank::Priority).then_some(fields)
    }

    fn interrupts(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.count).map(move |place| (place, self.first + place))
    }
}

impl<K: Kick> Vgic<K> {
    /// Reads a register of vCPU `vcpu`, or of the distributor, for vCPU `caller`.
    pub(super) fn read_fields(&self, caller: usize, vcpu: usize, fields: Fields) -> Read {
        if let Bank::Bits(Bit::SetPending | Bit::ClearPending | Bit::SetActive | Bit::ClearActive) =
            fields.bank
            && !self.is_known(caller, vcpu, fields)
        {
            return Read::Retry;
        }
        let mut value = 0;
        for (place, intid) in fields.interrupts() {
            let Some(state) = self.state(vcpu, intid) else { continue };
            value |= match fields.bank {
                Bank::Bits(bit) => {
                    u64::from(match bit {
                        Bit::Group => state.is_group1(),
                        Bit::SetEnable | Bit::ClearEnable => state.is_enabled(),
                        Bit::SetPending | Bit::ClearPending => state.is_pending(),
                        Bit::SetActive | Bit::ClearActive => state.is_active(),
                    }) << place
                }
                Bank::Priority => u64::from(state.priority()) << (8 * place),
                Bank::Trigger => u64::from(state.is_edge()) << (2 * place + 1),
            };
        }
        Read::Value(value)
    }

    /// Whether the words of all these interrupts say what is true at a moment between the first time that `caller` has
    /// asked for them and now.
    ///
    /// One that is loaded is asked for, which its vCPU takes away when it comes out. If it is loaded again when the
    /// caller comes back, and no reader waits for it, its word says what was true when it was loaded, which was after
    /// the question. (A guest that gives an access up, and makes the same much later, is answered as if it had never
    /// gone.)
    fn is_known(&self, caller: usize, vcpu: usize, fields: Fields) -> bool {
        let Some(reader) = self.redistributors.get(caller) else { return true };
        let private = fields.first < crate::vgic::PRIVATE;
        let register = (if private { vcpu as u64 + 1 } else { 0 }) << 32
            | u64::from(fields.first) << 1
            | u64::from(matches!(fields.bank, Bank::Bits(Bit::SetActive | Bit::ClearActive)));
        let asked_before = reader.asked.load(Ordering::Relaxed) == register + 1;
        let mut known = true;
        for (_, intid) in fields.interrupts() {
            let Some(state) = self.state(vcpu, intid) else { continue };
            if asked_before {
                known &= !state.is_asked();
            } else if state.is_loaded() {
                self.change(vcpu, intid, State::asked);
                known = false;
            }
        }
        reader.asked.store(if known { 0 } else { register + 1 }, Ordering::Relaxed);
        known
    }

    /// Writes a register of vCPU `vcpu`, or of the distributor. Each interrupt may be another vCPU's.
    pub(super) fn write_fields(
        &self,
        vcpu: usize,
        fields: Fields,
        value: u64,
        pause: &mut dyn FnMut(),
    ) {
        for (index, (place, intid)) in fields.interrupts().enumerate() {
            if index > 0 && index % PART == 0 {
                pause();
            }
            let is_set = value >> place & 1 != 0;
            match fields.bank {
                Bank::Bits(Bit::Group) => {
                    self.change(vcpu, intid, |state| state.with_group1(is_set));
                }
                Bank::Bits(_) if !is_set => {}
                Bank::Bits(bit) => {
                    self.change(vcpu, intid, |state| match bit {
                        Bit::Group => state,
                        Bit::SetEnable => state.with_enabled(true),
                        Bit::ClearEnable => state.with_enabled(false),
                        Bit::SetPending => state.latched(),
                        Bit::ClearPending => state.unlatched(),
                        Bit::SetActive => {
                            state.activated(self.target(vcpu, intid, state).unwrap_or(0))
                        }
                        Bit::ClearActive => state.deactivated(),
                    });
                }
                Bank::Priority => {
                    let priority = (value >> (8 * place)) as u8;
                    self.change(vcpu, intid, |state| state.with_priority(priority));
                }
                // SGIs are edges, always.
                Bank::Trigger if intid < 16 => {}
                Bank::Trigger => {
                    let edge = value >> (2 * place + 1) & 1 != 0;
                    self.change(vcpu, intid, |state| state.with_edge(edge));
                }
            }
        }
    }

    /// Whether an interrupt of any vCPU was disabled, and may be taken still.
    pub(crate) fn is_any_recalled(&self) -> bool {
        // Acquire, pairing with the release of who has taken the last one back.
        self.recalled.load(Ordering::Acquire) != 0
    }

    /// Whether one of this vCPU's was.
    pub(super) fn is_recalled(&self, vcpu: usize) -> bool {
        if !self.is_any_recalled() {
            return false;
        }
        let state = |word: &AtomicU64| State(word.load(Ordering::Acquire));
        let own = &self.redistributors[vcpu].interrupts;
        // Its vCPU has it loaded, or none has and it is not recalled.
        let lpi = |state: State| state.is_recalled() && state.owner() == vcpu;
        own.iter().any(|word| state(word).is_recalled())
            || self.lpis.iter().any(|word| lpi(state(word)))
    }
}
