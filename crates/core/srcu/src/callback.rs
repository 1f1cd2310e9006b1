//! What is deferred: a callback that carries its own node, so that deferring it never allocates.

use alloc::boxed::Box;
use core::mem::ManuallyDrop;
use core::ptr::{NonNull, null_mut};

use mayfly_platform::memory::{OutOfMemory, try_box};

/// What is to be done with a node.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// Its grace period is over: do what was deferred, and free the node.
    Run,
    /// It was never deferred: free the node.
    Discard,
}

/// The part of a node that queues see.
pub(crate) struct Head {
    /// The next node of the same chain.
    pub(crate) next: *mut Head,
    /// The first node of the next batch; of a batch's first node only.
    pub(crate) next_batch: *mut Head,
    /// The grace period that this node, and the batch it is the first of, waits for. Before it is deferred: the domain
    /// that it has to be deferred in ([`Callback::bind`]), or 0.
    pub(crate) period: u64,
    /// The memory that running this node gives back, in bytes.
    pub(crate) bytes: usize,
    /// Consumes the node.
    pub(crate) act: unsafe fn(NonNull<Head>, Act),
}

impl Head {
    pub(crate) fn new(bytes: usize, act: unsafe fn(NonNull<Head>, Act)) -> Self {
        Self { next: null_mut(), next_batch: null_mut(), period: 0, bytes, act }
    }
}

/// A node with what it carries. `repr(C)` with the head first: a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Node<T> {
    pub(crate) head: Head,
    pub(crate) value: T,
}

/// Work to do once no reader of the present is left: a closure, or the drop of a value.
///
/// It owns its node, so handing it to [`Srcu::call`](crate::Srcu::call) cannot fail for want of memory. Dropping it
/// instead discards it: the closure is dropped without being called. (One that came from
/// [`Retired::into_callback`](crate::Retired::into_callback) is leaked instead, since its readers may have it still.)
///
/// Callbacks run in no particular order, and on several threads at a time. They hold no lock of the domain's, and may
/// do anything but wait for a grace period of it ([`Srcu::synchronize`](crate::Srcu::synchronize) and the like): debug
/// builds panic there.
///
/// A callback that panics does so in the thread that runs it, after those behind it that were taken up with it have
/// run; a `WorkerThread` goes on. Where one of those panics as well, the process aborts, as wherever a panic meets
/// another.
#[must_use = "a callback that is dropped is never run"]
pub struct Callback {
    head: NonNull<Head>,
}

// SAFETY: a callback is made from a `Send` payload only (`Callback::try_new`, `RcuBox<T: Send>`), and is its only
// owner.
unsafe impl Send for Callback {}

impl Callback {
    /// Runs `work` after a grace period.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; `work` is dropped.
    pub fn try_new<F: FnOnce() + Send + 'static>(work: F) -> Result<Self, OutOfMemory> {
        unsafe fn act<F: FnOnce()>(head: NonNull<Head>, act: Act) {
            // SAFETY: `try_new` leaked a `Node<F>` whose first field is `head`; the thread that calls `act` gives it
            // up.
            let node = unsafe { Box::from_raw(head.cast::<Node<F>>().as_ptr()) };
            match act {
                Act::Run => (node.value)(),
                Act::Discard => drop(node),
            }
        }
        let node = try_box(Node { head: Head::new(size_of::<Node<F>>(), act::<F>), value: work })?;
        Ok(Self { head: NonNull::from(Box::leak(node)).cast() })
    }

    /// The memory that running this gives back, in bytes, as counted against the domain's bound.
    pub fn bytes(&self) -> usize {
        // SAFETY: the node lives as long as `self`, and no other party has it.
        unsafe { self.head.as_ref().bytes }
    }

    /// Takes over the node at `head`.
    ///
    /// # Safety
    ///
    /// `head` is valid until its `act` consumes it, what it carries may be sent to another thread, and no other party
    /// has it.
    pub(crate) unsafe fn from_head(head: NonNull<Head>) -> Self {
        Self { head }
    }

    /// Has this deferred in `domain` alone, which is named by its address, and never dropped otherwise. (A domain that
    /// has this address later comes after the end of the first, and so after all readers of that.)
    pub(crate) fn bind(&mut self, domain: NonNull<()>) {
        // SAFETY: the node is valid, and `self` its only owner.
        unsafe { self.head.as_mut().period = domain.addr().get() as u64 };
    }

    /// Whether this may be deferred in `domain`.
    pub(crate) fn may_be_deferred_in(&self, domain: NonNull<()>) -> bool {
        let bound = self.bound_to();
        bound == 0 || bound == domain.addr().get() as u64
    }

    fn bound_to(&self) -> u64 {
        // SAFETY: as in `bytes`.
        unsafe { self.head.as_ref().period }
    }

    /// Gives up the node.
    pub(crate) fn into_head(self) -> NonNull<Head> {
        ManuallyDrop::new(self).head
    }

    /// Does what was deferred.
    pub(crate) fn run(self) {
        let head = self.into_head();
        // SAFETY: the node is valid and given up here.
        unsafe { (head.as_ref().act)(head, Act::Run) }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if self.bound_to() == 0 {
            // SAFETY: the node is valid and `self` is its last owner.
            unsafe { (self.head.as_ref().act)(self.head, Act::Discard) }
        }
    }
}

impl core::fmt::Debug for Callback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Callback").field("bytes", &self.bytes()).finish()
    }
}

/// Runs each of `callbacks`. Where one panics, the panic goes on when those behind it have run too.
pub(crate) fn run_each(callbacks: impl Iterator<Item = Callback>) {
    struct Rest<I: Iterator<Item = Callback>>(I);
    impl<I: Iterator<Item = Callback>> Drop for Rest<I> {
        fn drop(&mut self) {
            self.0.by_ref().for_each(Callback::run);
        }
    }
    let mut rest = Rest(callbacks);
    rest.0.by_ref().for_each(Callback::run);
}

/// Does its work when it is dropped, so also where a callback panics.
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Nodes linked by `next`, owned.
pub(crate) struct Chain {
    first: *mut Head,
}

impl Chain {
    /// # Safety
    ///
    /// `first` is null or the first of a chain of valid nodes that no other party has.
    pub(crate) unsafe fn from_raw(first: *mut Head) -> Self {
        Self { first }
    }

    pub(crate) fn first(&self) -> *mut Head {
        self.first
    }

    /// The same nodes in the opposite order: what was pushed first comes first.
    pub(crate) fn reversed(self) -> Self {
        let mut left = ManuallyDrop::new(self).first;
        let mut first = null_mut();
        while !left.is_null() {
            let head = left;
            // SAFETY: every node of the chain is valid and ours. (No reference is made: it would stand for the head
            // alone, and the thread that runs the node takes all of it through this pointer.)
            unsafe {
                left = (*head).next;
                (*head).next = first;
            }
            first = head;
        }
        Self { first }
    }
}

impl Iterator for Chain {
    type Item = Callback;

    fn next(&mut self) -> Option<Callback> {
        let head = NonNull::new(self.first)?;
        // SAFETY: every node of the chain is valid and ours; this one leaves it.
        unsafe {
            self.first = head.as_ref().next;
            Some(Callback::from_head(head))
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        debug_assert!(self.first.is_null(), "a chain is run to its end");
    }
}
