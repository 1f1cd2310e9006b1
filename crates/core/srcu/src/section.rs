//! What every guard of a read-side section promises.

use crate::Srcu;

/// Proof of being inside a read-side section of some domain.
///
/// # Safety
///
/// While the value lives, its thread is inside a section of the domain that [`Section::domain`] names.
pub unsafe trait Section {
    /// The domain whose readers this section is one of.
    fn domain(&self) -> &Srcu;
}
