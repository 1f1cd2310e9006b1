//! System registers, drawn from the table of them ([`ROWS`]), and what accesses to them must come to.

use mayfly_arm64_registers::sysreg::SysReg;
use mayfly_arm64_registers::table::{self, ROWS, Row, Treatment};

use mayfly_guests::wild::random::Random;

/// A register that EL1 reads without an exception: `MIDR_EL1`.
pub(crate) const ALWAYS: SysReg = SysReg::new(3, 0, 0, 0, 0);

/// A register whose read at EL1 is an exception on every processor: `SCR_EL3`.
pub(crate) const NEVER: SysReg = SysReg::new(3, 6, 1, 1, 0);

/// A register of the table. Those that EL2 answers are drawn more often: they are fewer.
pub(crate) fn listed(random: &mut Random) -> SysReg {
    loop {
        let row = &ROWS[random.below(ROWS.len() as u64) as usize];
        let is_answered = matches!(
            row.treatment,
            Treatment::Trapped | Treatment::Reads(_) | Treatment::Ignores(_)
        );
        if is_answered || random.once_in(4) {
            return one_of(row, random);
        }
    }
}

fn one_of(row: &Row, random: &mut Random) -> SysReg {
    let (first, last) = row.ends();
    let mut between = |first: u8, last: u8| first + random.below(u64::from(last - first) + 1) as u8;
    SysReg::new(
        first.op0(),
        between(first.op1(), last.op1()),
        between(first.crn(), last.crn()),
        between(first.crm(), last.crm()),
        between(first.op2(), last.op2()),
    )
}

/// A register whose answers are known: what the table says that it reads as, or that it is undefined.
pub(crate) fn answered(random: &mut Random) -> SysReg {
    loop {
        let register = if random.once_in(4) {
            let [op0, op1, crn, crm, op2] = [0; 5].map(|_: u32| random.below(16) as u8);
            SysReg::new(2 | op0, op1, crn, crm, op2)
        } else {
            listed(random)
        };
        let is_known = match table::treatment(register) {
            // QEMU before 8.2 ignores `HCR_EL2.TIDCP`.
            Treatment::Hidden => !(register.op0() == 3 && matches!(register.crn(), 11 | 15)),
            Treatment::Reads(_) | Treatment::Ignores(_) => true,
            Treatment::Constant => !CHANGES.contains(&register),
            Treatment::Switched | Treatment::Trapped => false,
        };
        if is_known {
            return register;
        }
    }
}

/// What is the same for all guests, and another value each time: random numbers, and the machine's counter.
const CHANGES: [SysReg; 4] = [
    SysReg::new(3, 3, 2, 4, 0),
    SysReg::new(3, 3, 2, 4, 1),
    SysReg::new(3, 3, 14, 0, 1),
    SysReg::new(3, 3, 14, 0, 5),
];

/// Whether a read, a write, and another read have come to what the table says. `None` is undefined.
pub(crate) fn is_right(register: SysReg, [before, write, after]: [Option<u64>; 3]) -> bool {
    // What a later feature brings is undefined where the processor does not have it, and QEMU 7.2 does not have all
    // debug registers.
    let is_there = register.op0() == 3
        && table::row(register).is_some_and(|row| matches!(row.feature, "ARMv8.0" | "FEAT_GICv3"));
    let reads = |read: Option<u64>, value| read.map_or(!is_there, |read| read == value);
    match table::treatment(register) {
        Treatment::Hidden => (before, write, after) == (None, None, None),
        Treatment::Reads(value) => reads(before, value) && write.is_none() && before == after,
        Treatment::Ignores(value) => {
            reads(before, value) && before == after && before.is_some() == write.is_some()
        }
        Treatment::Constant => before == after && (before.is_some() || !is_there),
        Treatment::Switched | Treatment::Trapped => true,
    }
}
