//! How an interrupt goes into a list register.

/// What a list register says of an interrupt as it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) pending: bool,
    pub(crate) active: bool,
    pub(crate) end: End,
}

/// What is to happen when the guest has deactivated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Nothing,
    /// A maintenance interrupt.
    Told,
    /// The physical interrupt is deactivated too. Never of one that is pending and active.
    Linked,
}
