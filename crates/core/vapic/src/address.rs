//! Who a message is for: how a local APIC is addressed, which one word says to all that send to it.

/// What `IA32_APIC_BASE` says of a local APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Off: it has no registers, and no message reaches it.
    Disabled,
    /// Its registers are in a page of memory.
    Xapic,
    /// Its registers are MSRs.
    X2apic,
}

/// Whom a message names. Those of the IOAPIC and of local APICs in xAPIC mode have 8 bits, others 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    All,
    Physical(u32),
    Logical(u32),
}

impl Destination {
    pub(crate) const fn narrow(id: u8, logical: bool) -> Self {
        if id == u8::MAX { Self::All } else { Self::wide(id as u32, logical) }
    }

    pub(crate) const fn wide(id: u32, logical: bool) -> Self {
        match id {
            u32::MAX => Self::All,
            _ if logical => Self::Logical(id),
            _ => Self::Physical(id),
        }
    }
}

/// How a local APIC is addressed. It belongs to its vCPU, which alone writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) mode: Mode,
    /// Bit 8 of `SVR`: it takes interrupts with vectors.
    pub(crate) enabled: bool,
    /// The upper eight bits of `LDR`, in xAPIC mode.
    pub(crate) logical: u8,
    /// The upper four bits of `DFR`, in xAPIC mode: 15 is the flat model, 0 the cluster model, and others are none.
    pub(crate) model: u8,
    /// Which of its lives this is, modulo [`LIVES`]. INIT, start-up, and being turned off or on, begin another, in which it
    /// has forgotten what arrived before.
    pub(crate) life: u16,
}

/// How many lives of a local APIC a sender can tell from each other.
const LIVES: u16 = 1 << 13;

/// `LDR` in x2APIC mode (Intel SDM volume 3, 11.12.10.2): the vCPU's bit in its cluster of 16.
pub(crate) const fn cluster_bit(id: u32) -> u32 {
    (id >> 4) << 16 | 1 << (id & 0xf)
}

impl Address {
    pub(crate) const RESET: Self =
        Self { mode: Mode::Xapic, enabled: false, logical: 0, model: 0xf, life: 0 };

    /// In the life after this one.
    pub(crate) const fn next_life(self) -> Self {
        Self { life: (self.life + 1) % LIVES, ..self }
    }

    /// Whether it takes interrupts with vectors.
    pub(crate) const fn is_enabled(self) -> bool {
        self.enabled && !matches!(self.mode, Mode::Disabled)
    }

    pub(crate) const fn to_word(self) -> u32 {
        let mode = match self.mode {
            Mode::Disabled => 0,
            Mode::Xapic => 1,
            Mode::X2apic => 2,
        };
        self.logical as u32
            | (self.model as u32) << 8
            | mode << 16
            | (self.enabled as u32) << 18
            | (self.life as u32) << 19
    }

    pub(crate) const fn from_word(word: u32) -> Self {
        let mode = match word >> 16 & 3 {
            0 => Mode::Disabled,
            1 => Mode::Xapic,
            _ => Mode::X2apic,
        };
        Self {
            mode,
            enabled: word >> 18 & 1 != 0,
            logical: word as u8,
            model: (word >> 8 & 0xf) as u8,
            life: (word >> 19) as u16,
        }
    }

    /// Whether a message to `destination` is for the local APIC of vCPU `id`, which is addressed so (Intel SDM volume 3,
    /// 11.6.2; AMD APM volume 2, 16.6.1 and 16.14). A logical destination of more than 8 bits is one of x2APIC mode: it
    /// names nobody in xAPIC mode.
    pub(crate) const fn is_named(self, id: u32, destination: Destination) -> bool {
        match (self.mode, destination) {
            (Mode::Disabled, _) | (Mode::Xapic, Destination::Logical(0x100..)) => false,
            (_, Destination::All) => true,
            (_, Destination::Physical(named)) => named == id,
            (Mode::X2apic, Destination::Logical(named)) => {
                let own = cluster_bit(id);
                named >> 16 == own >> 16 && named & own & 0xffff != 0
            }
            (Mode::Xapic, Destination::Logical(named)) => {
                let own = self.logical as u32;
                match self.model {
                    0xf => named & own != 0,
                    0 => named >> 4 == own >> 4 && named & own & 0xf != 0,
                    _ => false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_read_as_it_was_written() {
        for mode in [Mode::Disabled, Mode::Xapic, Mode::X2apic] {
            for enabled in [false, true] {
                for logical in 0..=u8::MAX {
                    for model in 0..16 {
                        for life in [0, 1, LIVES / 2, LIVES - 1] {
                            let address = Address { mode, enabled, logical, model, life };
                            assert_eq!(Address::from_word(address.to_word()), address);
                        }
                    }
                }
            }
        }
    }

    /// The bits that are set, as a list.
    fn bits(of: u32) -> impl Iterator<Item = u32> {
        (0..32).filter(move |bit| of & 1 << bit != 0)
    }

    #[test]
    fn a_logical_destination_names_those_that_the_manual_says() {
        for own in 0..=u8::MAX {
            for named in 0..u8::MAX {
                let to = Destination::narrow(named, true);
                let is_named =
                    |model| Address { logical: own, model, ..Address::RESET }.is_named(3, to);
                let shares = |mask: u8| bits((own & mask).into()).any(|bit| named & 1 << bit != 0);
                assert_eq!(is_named(0xf), shares(0xff), "flat: {named:#x}, {own:#x}");
                let clustered = own / 16 == named / 16 && shares(0x0f);
                assert_eq!(is_named(0), clustered, "cluster: {named:#x}, {own:#x}");
                assert!((1..0xf).all(|model| !is_named(model)), "no model");
                let wide = Destination::wide(1 << 16 | u32::from(named), true);
                for model in [0, 0xf] {
                    let address = Address { logical: own, model, ..Address::RESET };
                    assert!(!address.is_named(3, wide), "a cluster of x2APIC mode: {own:#x}");
                }
            }
        }
        let x2apic = Address { mode: Mode::X2apic, ..Address::RESET };
        for id in 0..255 {
            for cluster in 0..17 {
                for members in [0, 1, 0x8000, 0xffff, 0x5555, 0xaaaa, 1 << (id % 16)] {
                    let named = Destination::wide(cluster << 16 | members, true);
                    let expected = id / 16 == cluster && bits(members).any(|bit| bit == id % 16);
                    assert_eq!(x2apic.is_named(id, named), expected, "{id}: {named:?}");
                }
            }
        }
    }

    #[test]
    fn a_physical_destination_names_one_and_all_ones_names_all_that_are_on() {
        for mode in [Mode::Disabled, Mode::Xapic, Mode::X2apic] {
            let address = Address { mode, ..Address::RESET };
            for named in 0..u8::MAX {
                for to in
                    [Destination::narrow(named, false), Destination::wide(named.into(), false)]
                {
                    for id in 0..255 {
                        let expected = mode != Mode::Disabled && id == u32::from(named);
                        assert_eq!(address.is_named(id, to), expected);
                    }
                }
            }
            for logical in [false, true] {
                let all =
                    [Destination::narrow(0xff, logical), Destination::wide(u32::MAX, logical)];
                for to in all {
                    assert_eq!(address.is_named(7, to), mode != Mode::Disabled);
                }
            }
        }
        let wide = Destination::wide(0xff, false);
        assert!(!Address::RESET.is_named(7, wide), "0xff is no vCPU in 32 bits, and not all");
    }
}
