//! What guests, devices and hypervisors do, drawn at random.

use proptest::prelude::*;

use crate::naive::{LINKED, VCPUS};

/// A bit of an interrupt that a register sets or clears; the number is the offset of the registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bit {
    Group = 0x080,
    SetEnable = 0x100,
    ClearEnable = 0x180,
    SetPending = 0x200,
    ClearPending = 0x280,
    SetActive = 0x300,
    ClearActive = 0x380,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A vCPU goes into its guest, or comes off its CPU.
    Enter(usize),
    Leave(usize),
    /// The guest takes an interrupt, and ends the last that it took.
    Acknowledge(usize),
    End(usize),
    /// The guest's own interface: groups, priority mask.
    Interface(usize, u8, u8),
    Bit(Bit, usize, u32, bool),
    Priority(usize, u32, u8),
    Trigger(usize, u32, bool),
    Route(u32, usize),
    Groups(u32),
    Waker(usize, bool),
    Line(usize, u32, bool),
    Pulse(u32),
    TakeLinked(usize),
    WithdrawLinked(usize),
    Sgi(usize, u64),
}

/// Few enough that they meet: SGIs, PPIs with the linked one, SPIs with one that there is not.
fn any_interrupt() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0_u32), Just(7), Just(16), Just(LINKED), 32..38_u32, Just(71), Just(72)]
}

pub(crate) fn any_step(with_active: bool) -> impl Strategy<Value = Step> {
    let vcpu = || 0..VCPUS;
    let bits = vec![
        Bit::SetEnable,
        Bit::SetEnable,
        Bit::ClearEnable,
        Bit::Group,
        Bit::SetPending,
        Bit::SetPending,
        Bit::ClearPending,
    ];
    let active = vec![Bit::SetActive, Bit::ClearActive];
    let bits = if with_active { [bits, active].concat() } else { bits };
    prop_oneof![
        3 => vcpu().prop_map(Step::Enter),
        1 => vcpu().prop_map(Step::Leave),
        6 => vcpu().prop_map(Step::Acknowledge),
        4 => vcpu().prop_map(Step::End),
        1 => (vcpu(), 0..4_u8, prop_oneof![3 => Just(0xff_u8), 1 => any::<u8>()])
            .prop_map(|(vcpu, groups, mask)| Step::Interface(vcpu, groups, mask)),
        6 => (prop::sample::select(bits), vcpu(), any_interrupt(), any::<bool>())
            .prop_map(|(bit, vcpu, intid, set)| Step::Bit(bit, vcpu, intid, set)),
        2 => (vcpu(), any_interrupt(), any::<u8>())
            .prop_map(|(vcpu, intid, priority)| Step::Priority(vcpu, intid, priority)),
        1 => (vcpu(), any_interrupt(), any::<bool>())
            .prop_map(|(vcpu, intid, edge)| Step::Trigger(vcpu, intid, edge)),
        2 => (32..38_u32, 0..=VCPUS).prop_map(|(intid, to)| Step::Route(intid, to)),
        1 => prop_oneof![Just(3_u32), 0..4_u32].prop_map(Step::Groups),
        1 => (vcpu(), prop_oneof![4 => Just(false), 1 => Just(true)])
            .prop_map(|(vcpu, asleep)| Step::Waker(vcpu, asleep)),
        4 => (vcpu(), any_interrupt(), any::<bool>())
            .prop_map(|(vcpu, intid, high)| Step::Line(vcpu, intid, high)),
        2 => (32..38_u32).prop_map(Step::Pulse),
        2 => vcpu().prop_map(Step::TakeLinked),
        1 => vcpu().prop_map(Step::WithdrawLinked),
        3 => (vcpu(), 0..8_u64, 0..16_u64, prop_oneof![8 => Just(0_u64), 1 => Just(1 << 40), 1 => Just(1 << 16)])
            .prop_map(|(vcpu, targets, intid, other)| {
                Step::Sgi(vcpu, targets | (intid % 2 * 7) << 24 | other)
            }),
    ]
}
