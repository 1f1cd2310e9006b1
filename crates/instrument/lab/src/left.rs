//! What an earlier run has left changed on the host.

/// Puts back what a run has left that was killed, and all who were to put it back with it. Says in one line what that
/// was, if anything.
pub fn put_back_what_was_left() -> Option<String> {
    match mayfly_kvm::Ksm::put_back_what_was_left() {
        0 => None,
        count => Some(format!(
            "put back {count} settings of the page merger, which a run that was killed had left"
        )),
    }
}
