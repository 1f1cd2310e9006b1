//! A platform that panics ends the program, wherever somebody's memory depends on what it would leave undone; nothing
//! is freed under a reader on the way.
//!
//! Each case is a method that panics while something is under way, and a process of its own: this test's binary again,
//! told by a variable that the case is its own. Under Miri, which starts no process, a case runs where it is called and
//! ends the run: `scripts/miri` runs them one by one, and tells an abort from undefined behaviour.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod case;
#[path = "../patience/mod.rs"]
mod patience;
mod platform;
mod under_way;

/// Modules named after what is under way, with a test for each method that is called there by whoever does it
/// (`Mine`), or by other threads (`Others`).
macro_rules! cases {
    ($($(#[$attribute:meta])* $under_way:ident, $whose:ident: $($method:ident)+;)+) => {$(
        $(#[$attribute])*
        mod $under_way {
            $(
                #[test]
                fn $method() {
                    let whose = crate::platform::Whose::$whose;
                    crate::case::aborts(stringify!($method), whose, crate::under_way::$under_way);
                }
            )+
        }
    )+};
}

cases! {
    while_a_domain_is_built, Mine: in_identity in_reader_barrier in_now;
    while_a_value_waits_for_its_readers, Mine: in_charge in_heavy_barrier in_wait;
    while_a_value_waits_on_a_fenced_domain, Mine: in_charge in_now in_wait_until;
    while_a_callback_waits_at_the_hard_bound, Mine: in_charge in_heavy_barrier in_wait;
    while_a_value_is_deferred, Mine: in_now;
    while_a_value_is_deferred_in_haste, Mine: in_charge in_heavy_barrier in_now;
    while_a_worker_is_called, Mine: in_wake;
    while_a_worker_sees_to_a_value, Others: in_charge in_heavy_barrier in_now;
    while_a_waiter_is_on_the_stack, Mine: in_now in_wait;
    while_a_worker_sees_to_a_waiter, Others: in_charge in_heavy_barrier in_now;
    while_a_worker_wakes_a_waiter, Others: in_wake;
    while_a_reader_leaves_that_is_waited_for, Mine: in_wake;
}

/// What runs here is asked in these builds alone.
#[cfg(debug_assertions)]
mod where_it_is_asked {
    cases! {
        while_a_value_waits_for_its_readers, Mine: in_context;
        while_a_callback_waits_at_the_hard_bound, Mine: in_context;
    }
}

/// Under Miri a turn of the worker's takes as long as it would sleep, so there it may not.
#[cfg(not(miri))]
mod where_it_sleeps {
    cases! {
        while_a_worker_sees_to_a_value, Others: in_wait_until;
        while_a_worker_sees_to_a_waiter, Others: in_wait_until;
    }
}
