//! The table has a row for each register of EL1 and EL0 that another project lists.

use mayfly_arm64_registers::sysreg::SysReg;
use mayfly_arm64_registers::table::row;

/// Each line's name and register.
fn listed() -> impl Iterator<Item = (&'static str, SysReg)> {
    let lines = include_str!("linux.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (name, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<u8> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [op0, op1, crn, crm, op2] = numbers[..] else { panic!("{line}") };
        (name, SysReg::new(op0, op1, crn, crm, op2))
    })
}

#[test]
fn each_register_of_el1_and_el0_that_linux_knows_has_a_row() {
    let missing: Vec<_> = listed().filter(|(_, register)| row(*register).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(listed().count() > 400);
}
