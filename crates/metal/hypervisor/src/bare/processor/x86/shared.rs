//! What all processors of the machine share, known once the machine is prepared.

use mayfly_x86::svm::features::Features;

use crate::bare::processor::once::Once;

/// What guests are confined by.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    /// What all processors have of SVM.
    pub(crate) features: Features,
}

static SHARED: Once<Shared> = Once::new();

/// Whether [`set`] was called.
pub(crate) fn is_set() -> bool {
    SHARED.get().is_some()
}

/// Sets it. Once, when all processors have come, and before one is prepared further.
pub(crate) fn set(shared: Shared) {
    SHARED.set(shared);
}

/// What [`set`] was given.
#[inline]
pub(crate) fn get() -> &'static Shared {
    SHARED.get().expect("the machine is prepared")
}
