//! The steps by which pages come to share frames while guests use them.
//!
//! A guest goes on reading its page all the time, and finds it nowhere missing. What it writes is never lost: it is in the
//! frame before the contents are compared, or it waits for a frame of its own.
//!
//! 1. *Protect.* No CPU has the right to write to any of the pages when this is done, in a table or in a TLB; and no fault
//!    gives it until the end.
//! 2. *Close.* No thread of the host itself writes to them any more, as a device does.
//! 3. *Compare.* Only now: an earlier comparison says nothing of a write between it and the first two steps.
//! 4. *Replace.* Where they are equal, the host's own table names the common frame, and then the guests' tables do, in place:
//!    read-only for read-only of the same contents. Where they are not, the page is its own again.
//! 5. *End.* Faults resolve the pages anew. The frames that were left are freed when no TLB and no thread has them.
//!
//! `tests/loom.rs` has a guest and a device write to a page at any moment of this.

/// A change that is made in these steps.
pub trait Steps {
    /// Announces the change, and takes the right to write away. Complete on all CPUs when it returns.
    fn protect(&mut self);

    /// Has no thread of the host write to the pages. Complete when it returns.
    fn close(&mut self);

    /// Compares contents.
    fn compare(&mut self);

    /// Has what is equal in the common frame.
    fn replace(&mut self);

    /// Ends the announcement, and has the old frames freed.
    fn end(&mut self);
}

/// Makes the change.
pub fn share(change: &mut impl Steps) {
    change.protect();
    change.close();
    change.compare();
    change.replace();
    change.end();
}
