//! The formats that a test goes through.

/// Checks that in formats that differ in when they ask for break-before-make, in how many levels they have, and in what
/// hardware sets by itself.
macro_rules! in_formats {
    ($check:ident) => {
        $check::<mayfly_stage2::Arm<40>>();
        $check::<mayfly_stage2::Arm<48>>();
        $check::<mayfly_stage2::Ept>();
        $check::<mayfly_stage2::Npt>();
        $check::<mayfly_stage2::Sv39x4>();
        $check::<mayfly_stage2::Sv48x4>();
    };
}
