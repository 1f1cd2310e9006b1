//! What an earlier run has left changed on the host.

/// Puts back what a killed run has left, if the processes that should have put it back were killed, too. Returns one line
/// that says what it was, if there was anything.
pub fn put_back_what_was_left() -> Option<String> {
    match mayfly_kvm::Ksm::put_back_what_was_left() {
        0 => None,
        count => Some(format!(
            "put back {count} settings of the page merger that a killed run had left changed"
        )),
    }
}
