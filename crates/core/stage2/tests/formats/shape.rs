use mayfly_stage2::{Arm, ArmFwb, Ept, Format, Level, Npt, Sv39x4, Sv48x4};

#[test]
fn guest_physical_addresses_are_as_wide_as_the_manuals_say() {
    // DDI 0487, "Implemented IPA size": two concatenated tables of level 1 (39 bits) are 40; one of level 0 is 48.
    assert_eq!(<Arm<40>>::IPA_BITS, 40);
    assert_eq!(<Arm<48>>::IPA_BITS, 48);
    // SDM volume 3C, "EPT Translation Mechanism": bits 47:0 of a guest-physical address, with a page-walk length of 4.
    assert_eq!(Ept::IPA_BITS, 48);
    // APM volume 2, "Long-Mode Page Translation": a 48-bit address goes through four levels.
    assert_eq!(Npt::IPA_BITS, 48);
    // Privileged Architecture, "Guest Physical Address Translation": widened by 2 bits, to 41 or 50.
    assert_eq!(Sv39x4::IPA_BITS, 41);
    assert_eq!(Sv48x4::IPA_BITS, 50);
}

#[test]
fn roots_are_as_large_as_the_manuals_say() {
    // Tables, and the size that an entry of the root stands for.
    assert_eq!((1 << <Arm<40>>::ROOT_ORDER, <Arm<40>>::TOP), (2, Level::GIB1));
    assert_eq!((1 << <Arm<48>>::ROOT_ORDER, <Arm<48>>::TOP), (1, Level::GIB512));
    assert_eq!((1 << Ept::ROOT_ORDER, Ept::TOP), (1, Level::GIB512));
    assert_eq!((1 << Npt::ROOT_ORDER, Npt::TOP), (1, Level::GIB512));
    assert_eq!((1 << Sv39x4::ROOT_ORDER, Sv39x4::TOP), (4, Level::GIB1));
    assert_eq!((1 << Sv48x4::ROOT_ORDER, Sv48x4::TOP), (4, Level::GIB512));
}

/// Bits, tables of the root, and the size that an entry of the root stands for.
fn shape<F: Format>() -> (u32, u32, Level) {
    (F::IPA_BITS, 1 << F::ROOT_ORDER, F::TOP)
}

macro_rules! arm_shapes {
    ($($bits:literal: $tables:literal, $top:expr;)*) => {
        $(
            assert_eq!(shape::<Arm<$bits>>(), ($bits, $tables, $top));
            assert_eq!(shape::<ArmFwb<$bits>>(), ($bits, $tables, $top));
        )*
    };
}

/// DDI 0487, "VMSAv8-64 translation using the 4KB granule", and "Concatenated translation tables": a table of level 1
/// translates 39 bits, and 16 of them can be concatenated.
#[test]
fn arm_concatenates_up_to_sixteen_tables_before_it_begins_a_level_higher() {
    arm_shapes! {
        32: 1, Level::GIB1;
        33: 1, Level::GIB1;
        34: 1, Level::GIB1;
        35: 1, Level::GIB1;
        36: 1, Level::GIB1;
        37: 1, Level::GIB1;
        38: 1, Level::GIB1;
        39: 1, Level::GIB1;
        40: 2, Level::GIB1;
        41: 4, Level::GIB1;
        42: 8, Level::GIB1;
        43: 16, Level::GIB1;
        44: 1, Level::GIB512;
        45: 1, Level::GIB512;
        46: 1, Level::GIB512;
        47: 1, Level::GIB512;
        48: 1, Level::GIB512;
    }
}
