//! PSCI and SMCCC: each function, each refusal, and many cores that call at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mayfly_devices::psci::{Core, Outcome, Psci, Refusal};
use mayfly_devices::smccc::{self, NOT_SUPPORTED, Need, Workaround, Workarounds};
use proptest::prelude::*;

const VERSION: u64 = 0x8400_0000;
const CPU_SUSPEND: u64 = 0xc400_0001;
const CPU_OFF: u64 = 0x8400_0002;
const CPU_ON_32: u64 = 0x8400_0003;
const CPU_ON: u64 = 0xc400_0003;
const AFFINITY_INFO: u64 = 0xc400_0004;
const MIGRATE_INFO_TYPE: u64 = 0x8400_0006;
const SYSTEM_OFF: u64 = 0x8400_0008;
const SYSTEM_RESET: u64 = 0x8400_0009;
const FEATURES: u64 = 0x8400_000a;
const SYSTEM_RESET2_32: u64 = 0x8400_0012;
const SYSTEM_RESET2: u64 = 0xc400_0012;
const MEM_PROTECT: u64 = 0x8400_0013;
const SMCCC_VERSION: u64 = 0x8000_0000;
const ARCH_FEATURES: u64 = 0x8000_0001;
const WORKAROUND_1: u64 = 0x8000_8000;
const WORKAROUND_2: u64 = 0x8000_7fff;
const WORKAROUND_3: u64 = 0x8000_3fff;

const fn refused(code: i64) -> Outcome {
    Outcome::Return(code.cast_unsigned())
}

const INVALID_PARAMETERS: Outcome = refused(-2);
const ALREADY_ON: Outcome = refused(-4);

/// Three cores of two clusters, of which the first is on.
fn system() -> Psci<[Core; 3]> {
    Psci::new([Core::on(0x8000_0000), Core::off(1), Core::off(0x100)])
}

fn call(psci: &Psci<[Core; 3]>, arguments: [u64; 4]) -> Outcome {
    smccc::call(psci, Workarounds::default(), 0, &arguments)
}

#[test]
fn what_a_debian_kernel_asks_is_answered_as_it_expects() {
    let psci = system();
    assert_eq!(call(&psci, [VERSION, 0, 0, 0]), Outcome::Return(0x1_0001));
    assert_eq!(call(&psci, [MIGRATE_INFO_TYPE, 0, 0, 0]), Outcome::Return(2));
    assert_eq!(call(&psci, [FEATURES, SMCCC_VERSION, 0, 0]), Outcome::Return(0));
    assert_eq!(call(&psci, [SMCCC_VERSION, 0, 0, 0]), Outcome::Return(0x1_0001));
    let start = Outcome::Start { target: 1, entry: 0x4020_0000, context: 7 };
    assert_eq!(call(&psci, [CPU_ON, 1, 0x4020_0000, 7]), start);
    assert_eq!(call(&psci, [SYSTEM_OFF, 0, 0, 0]), Outcome::SystemOff);
    assert_eq!(call(&psci, [SYSTEM_RESET, 0, 0, 0]), Outcome::SystemReset);
    assert_eq!(call(&psci, [CPU_SUSPEND, 0, 0, 0]), Outcome::Wait);
}

#[test]
fn features_says_success_for_what_is_answered_and_no_other() {
    let psci = system();
    let answered = [
        VERSION,
        CPU_SUSPEND,
        CPU_OFF,
        CPU_ON,
        AFFINITY_INFO,
        MIGRATE_INFO_TYPE,
        SYSTEM_OFF,
        SYSTEM_RESET,
        SYSTEM_RESET2_32,
        SYSTEM_RESET2,
        FEATURES,
        0x8400_0001,
        0x8400_0003,
        0x8400_0004,
        SMCCC_VERSION,
    ];
    for function in (0x8400_0000..0x8400_0100).chain(0xc400_0000..0xc400_0100) {
        let expected = if answered.contains(&function) { 0 } else { NOT_SUPPORTED };
        let said = call(&psci, [FEATURES, function, 0, 0]);
        assert_eq!(said, Outcome::Return(expected), "{function:#x}");
        if expected != 0 {
            let all = [function, u64::MAX, u64::MAX, u64::MAX];
            assert_eq!(call(&psci, all), Outcome::Return(NOT_SUPPORTED), "{function:#x}");
        }
    }
}

/// As KVM (`kvm_psci_1_x_call` in `arch/arm64/kvm/psci.c`), but that no type is the vendor's.
#[test]
fn a_warm_reset_is_a_reset_and_no_other_type_is_known() {
    let psci = system();
    for function in [SYSTEM_RESET2_32, SYSTEM_RESET2] {
        assert_eq!(call(&psci, [function, 0, 7, 0]), Outcome::SystemReset);
        for kind in [1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
            assert_eq!(call(&psci, [function, kind, 7, 0]), INVALID_PARAMETERS, "{kind:#x}");
        }
    }
}

#[test]
fn memory_is_not_protected_across_resets_and_that_is_said() {
    let psci = system();
    for function in [MEM_PROTECT, 0x8400_0014, 0xc400_0014] {
        assert_eq!(call(&psci, [function, 1, 0x1000, 0]), Outcome::Return(NOT_SUPPORTED));
    }
}

/// The original format of the power state (DEN 0022, 5.4.2): bits 31 to 26 and 23 to 17 are zero.
#[test]
fn a_core_is_suspended_in_any_state_of_the_format_that_features_names_and_in_no_other() {
    let psci = system();
    for state in [0, 1, 0xffff, 0x1_0000, 0x300_0000] {
        assert_eq!(call(&psci, [CPU_SUSPEND, state, 0x4000_0000, 0]), Outcome::Wait, "{state:#x}");
    }
    for bit in (17..24).chain(26..32) {
        assert_eq!(call(&psci, [CPU_SUSPEND, 1 << bit, 0, 0]), INVALID_PARAMETERS, "bit {bit}");
    }
}

#[test]
fn a_core_that_runs_or_is_about_to_is_not_turned_on_again() {
    let psci = system();
    assert_eq!(call(&psci, [CPU_ON, 0, 0, 0]), ALREADY_ON);
    assert!(matches!(call(&psci, [CPU_ON, 0x100, 4, 5]), Outcome::Start { target: 2, .. }));
    assert_eq!(call(&psci, [CPU_ON, 0x100, 4, 5]), ALREADY_ON);
    assert_eq!(call(&psci, [AFFINITY_INFO, 0x100, 0, 0]), Outcome::Return(0));
    psci.started(2);
    assert_eq!(call(&psci, [CPU_ON, 0x100, 4, 5]), ALREADY_ON);
    assert_eq!(call(&psci, [AFFINITY_INFO, 0x100, 0, 0]), Outcome::Return(0));
}

#[test]
fn a_core_is_off_when_it_has_stopped_and_not_when_it_asks_to() {
    let psci = system();
    assert_eq!(smccc::call(&psci, Workarounds::default(), 0, &[CPU_OFF, 0, 0, 0]), Outcome::Stop);
    assert_eq!(call(&psci, [AFFINITY_INFO, 0, 0, 0]), Outcome::Return(0));
    assert_eq!(call(&psci, [CPU_ON, 0, 0, 0]), ALREADY_ON);
    psci.stopped(0);
    assert!(!psci.is_on(0));
    assert_eq!(call(&psci, [AFFINITY_INFO, 0, 0, 0]), Outcome::Return(1));
    let again = call(&psci, [CPU_ON, 0, 0x1000, 1]);
    assert_eq!(again, Outcome::Start { target: 0, entry: 0x1000, context: 1 });
}

#[test]
fn a_core_that_could_not_be_started_is_off_and_can_be_tried_again() {
    let psci = system();
    for (why, code) in [(Refusal::Address, -9_i64), (Refusal::Resources, -6)] {
        assert!(matches!(call(&psci, [CPU_ON, 1, 4, 5]), Outcome::Start { .. }));
        assert_eq!(psci.refused(1, why), code.cast_unsigned());
        assert_eq!(call(&psci, [AFFINITY_INFO, 1, 0, 0]), Outcome::Return(1));
    }
}

#[test]
fn a_core_that_there_is_not_and_a_reserved_bit_are_invalid_parameters() {
    let psci = system();
    for target in [2, 0x101, 1 << 32, 1 << 31, u64::MAX] {
        assert_eq!(call(&psci, [CPU_ON, target, 0, 0]), INVALID_PARAMETERS, "{target:#x}");
        assert_eq!(call(&psci, [AFFINITY_INFO, target, 0, 0]), INVALID_PARAMETERS, "{target:#x}");
    }
    assert_eq!(call(&psci, [AFFINITY_INFO, 0, 4, 0]), INVALID_PARAMETERS);
}

#[test]
fn the_calls_of_32_bits_have_arguments_of_32_bits() {
    let psci = system();
    let high = 0xffff_ffff_0000_0000;
    let start = Outcome::Start { target: 1, entry: 8, context: 9 };
    assert_eq!(call(&psci, [high | CPU_ON_32, high | 1, high | 8, high | 9]), start);
}

#[test]
fn a_cluster_is_on_while_one_of_its_cores_is() {
    let psci = system();
    assert_eq!(call(&psci, [AFFINITY_INFO, 1, 1, 0]), Outcome::Return(0), "core 0 is");
    assert_eq!(call(&psci, [AFFINITY_INFO, 0x103, 1, 0]), Outcome::Return(1));
    assert_eq!(call(&psci, [AFFINITY_INFO, 0x103, 2, 0]), Outcome::Return(0));
    assert_eq!(call(&psci, [AFFINITY_INFO, 0x5_0000, 3, 0]), Outcome::Return(0));
}

#[test]
fn a_workaround_is_done_where_it_is_required_and_nowhere_else() {
    let psci = system();
    let required = Workarounds {
        branch_target: Need::Required,
        store_bypass: Need::Required,
        branch_history: Need::Required,
    };
    let not_required = Workarounds {
        branch_target: Need::NotRequired,
        store_bypass: Need::NotRequired,
        branch_history: Need::NotRequired,
    };
    for (function, done, not_required_says) in [
        (WORKAROUND_1, Workaround::BranchTarget, 1),
        (WORKAROUND_2, Workaround::StoreBypass { on: true }, (-2_i64).cast_unsigned()),
        (WORKAROUND_3, Workaround::BranchHistory, 1),
    ] {
        for (needs, said, does) in [
            (Workarounds::default(), NOT_SUPPORTED, Outcome::Return(NOT_SUPPORTED)),
            (not_required, not_required_says, Outcome::Return(0)),
            (required, 0, Outcome::Workaround(done)),
        ] {
            let call = |arguments| smccc::call(&psci, needs, 0, &arguments);
            assert_eq!(call([ARCH_FEATURES, function, 0, 0]), Outcome::Return(said));
            assert_eq!(call([function, 1, 0, 0]), does);
        }
    }
}

#[test]
fn of_those_who_turn_on_one_core_one_does() {
    for _ in 0..200 {
        let (psci, started) = (system(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| match call(&psci, [CPU_ON, 1, 0, 0]) {
                    Outcome::Start { target: 1, .. } => {
                        started.fetch_add(1, Ordering::Relaxed);
                        psci.started(1);
                    }
                    other => assert_eq!(other, ALREADY_ON),
                });
            }
        });
        assert_eq!(started.into_inner(), 1);
    }
}

proptest! {
    #[test]
    fn any_registers_of_any_core_have_an_answer_and_turn_on_no_core_that_is_on(
        calls in prop::collection::vec(
            (
                0..4_usize,
                prop_oneof![
                    (0x8400_0000_u64..0x8400_0020),
                    (0xc400_0000_u64..0xc400_0020),
                    any::<u64>(),
                ],
                prop_oneof![0..3_u64, Just(0x100), any::<u64>()],
                any::<u64>(),
            ),
            0..50
        )
    ) {
        let psci = system();
        for (caller, function, first, second) in calls {
            let on = [psci.is_on(0), psci.is_on(1), psci.is_on(2)];
            match smccc::call(&psci, Workarounds::default(), caller, &[function, first, second, 0]) {
                Outcome::Start { target, .. } => {
                    prop_assert!(!on[target]);
                    psci.started(target);
                }
                Outcome::Stop => {
                    prop_assert!(caller < 3);
                    if on[caller] {
                        psci.stopped(caller);
                    }
                }
                Outcome::Workaround(_) => prop_assert!(false, "none is required"),
                _ => prop_assert_eq!(on, [psci.is_on(0), psci.is_on(1), psci.is_on(2)]),
            }
        }
    }
}
