//! Code out of which nothing may unwind.

/// Does `work`, and aborts where it panics: for what would leave a promise half kept behind it, on which the safety of
/// others rests.
///
/// Needs no `std`: a panic that meets another one aborts. Costs nothing where panics abort anyway. Under a model
/// checker the panic goes on, since that is how a checker reports the schedule that it has found.
///
/// ```no_run
/// # use mayfly_platform::no_unwind;
/// no_unwind(|| panic!("the process ends here"));
/// ```
#[inline]
pub fn no_unwind<R>(work: impl FnOnce() -> R) -> R {
    struct Abort;
    impl Drop for Abort {
        #[cold]
        fn drop(&mut self) {
            let goes_on = cfg!(any(mayfly_loom, mayfly_shuttle));
            assert!(
                goes_on,
                "a panic that cannot go on: others' memory depends on what it would leave undone"
            );
        }
    }
    let abort = Abort;
    let done = work();
    core::mem::forget(abort);
    done
}
