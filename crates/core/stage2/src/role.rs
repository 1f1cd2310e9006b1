//! Roles: the purposes of a VM's roots.

/// Roots of a VM at one moment are at most so many, twice as many while they are replaced.
pub(crate) const ROLES: usize = 4;

/// What a root is for. A role names a way of seeing the VM's memory (an address space, a kind of access); what it means
/// is its user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Role(u8);

impl Role {
    /// The number of roles.
    pub const COUNT: u8 = ROLES as u8;

    /// The first role: what a vCPU runs on if nothing calls for another.
    pub const MAIN: Self = Self(0);

    /// The last role, under which the right to write comes with a mark in the leaf ([`Leaf::written`](crate::Leaf)), so
    /// that it is known what was written. So that marks are not lost, no block takes a table's place here; and what the
    /// host does to a page never gives the right.
    pub const MARKED: Self = Self(Self::COUNT - 1);

    /// Role `number`, which is below [`Role::COUNT`].
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether it is [`Role::MARKED`].
    #[inline]
    pub(crate) const fn marks_writes(self) -> bool {
        self.0 == Self::MARKED.0
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}
