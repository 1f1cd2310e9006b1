//! Made-up instructions, as words.

use mayfly_arm64_registers::sysreg::SysReg;

use crate::registers;
use mayfly_guests::wild::random::Random;

/// `ret`.
pub(crate) const RET: u32 = 0xd65f_03c0;

/// Loads and stores by the address in x1, as they are without an offset: of every size, of one register, of two, of
/// vectors, exclusive, atomic, ordered, unprivileged, with write-back; hints; and caches' instructions.
const TRANSFERS: [u32; 38] = [
    0x3940_0022, // ldrb w2, [x1]
    0x7940_0022, // ldrh w2, [x1]
    0xb940_0022, // ldr w2, [x1]
    0xf940_0022, // ldr x2, [x1]
    0x3900_0022, // strb w2, [x1]
    0x7900_0022, // strh w2, [x1]
    0xb900_0022, // str w2, [x1]
    0xf900_0022, // str x2, [x1]
    0x3980_0022, // ldrsb x2, [x1]
    0x79c0_0022, // ldrsh w2, [x1]
    0xb980_0022, // ldrsw x2, [x1]
    0xf840_0c22, // ldr x2, [x1, #0]!
    0xf800_0422, // str x2, [x1], #0
    0xa940_0c22, // ldp x2, x3, [x1]
    0xa900_0c22, // stp x2, x3, [x1]
    0x2940_0c22, // ldp w2, w3, [x1]
    0x3dc0_0022, // ldr q2, [x1]
    0x3d80_0022, // str q2, [x1]
    0x4c40_7022, // ld1 {v2.16b}, [x1]
    0x4c00_7022, // st1 {v2.16b}, [x1]
    0xc85f_7c22, // ldxr x2, [x1]
    0x885f_7c22, // ldxr w2, [x1]
    0xc804_7c22, // stxr w4, x2, [x1]
    0xc87f_0c22, // ldxp x2, x3, [x1]
    0xc824_0c22, // stxp w4, x2, x3, [x1]
    0xc8df_fc22, // ldar x2, [x1]
    0x889f_fc22, // stlr w2, [x1]
    0xc8e2_fc23, // casal x2, x3, [x1]
    0x4822_7c24, // casp x2, x3, x4, x5, [x1]
    0xf8e2_0023, // ldaddal x2, x3, [x1]
    0xb8e2_8023, // swpal w2, w3, [x1]
    0xf840_0822, // ldtr x2, [x1]
    0xb800_0822, // sttr w2, [x1]
    0xf980_0020, // prfm pldl1keep, [x1]
    0xd50b_7421, // dc zva, x1
    0xd508_7621, // dc ivac, x1
    0xd50b_7e21, // dc civac, x1
    0xd50b_7521, // ic ivau, x1
];

/// What this guest would not find back from, as `op0`, `op1`, `CRn`, `CRm`, `op2`, where 8 is any: its MMU, its
/// vectors, its stack.
const LOST: [[u32; 5]; 5] = [
    [3, 0, 1, 0, 0],  // SCTLR_EL1
    [3, 0, 2, 0, 8],  // TTBR0_EL1, TTBR1_EL1, TCR_EL1
    [3, 0, 10, 2, 8], // MAIR_EL1
    [3, 0, 12, 0, 0], // VBAR_EL1
    [0, 0, 4, 8, 8],  // SPSel, DAIFSet and their like
];

/// What ends QEMU 7.2 itself when it is written, without an exit that the hypervisor could answer.
const ENDS_QEMU: [[u32; 5]; 4] = [
    // ICC_BPR0_EL1, ICC_BPR1_EL1: of a value of more than three bits, `icv_gprio_mask` asserts that there is none.
    [3, 0, 12, 8, 3],
    [3, 0, 12, 12, 3],
    // CNTV_TVAL_EL0, CNTV_CVAL_EL0: where the time that they say, seen from the physical counter, is past 2^64,
    // `gt_recalc_timer` sets a timer that is due at once, for ever (mended in QEMU 8.2).
    [3, 3, 14, 3, 0],
    [3, 3, 14, 3, 2],
];

/// A word that reads or writes a system register, or is an instruction of that kind; `None` where that would end more
/// than an episode. Half of them are of registers that the table has.
pub(crate) fn system(random: &mut Random) -> Option<u32> {
    let register = if random.once_in(2) {
        registers::listed(random)
    } else {
        let [op0, op1, crn, crm, op2] = [0; 5].map(|_: u32| random.below(16) as u8);
        SysReg::new(op0, op1, crn, crm, op2)
    };
    let reads = random.once_in(2);
    if !reads && (lists(&LOST, numbers(register)) || lists(&ENDS_QEMU, numbers(register))) {
        return None;
    }
    let rt = random.below(16) as u8;
    Some(if reads { register.read_word(rt) } else { register.write_word(rt) })
}

fn numbers(register: SysReg) -> [u32; 5] {
    [register.op0(), register.op1(), register.crn(), register.crm(), register.op2()].map(u32::from)
}

fn lists(list: &[[u32; 5]], numbers: [u32; 5]) -> bool {
    let is = |listed: &[u32; 5]| {
        listed.iter().zip(numbers).all(|(listed, number)| *listed == 8 || *listed == number)
    };
    list.iter().any(is)
}

/// The last twelve bits of what writes `CNTV_TVAL` or `CNTV_CVAL` in A32 and T32 (`MCR p15, 0, Rt, c14, c3, 0` and `MCRR p15, 3, Rt, Rt2,
/// c14`), which EL0 may be in: those of a word of A32, of the second half of one of T32.
const ENDS_QEMU_IN_32: [u32; 2] = [0xf13, 0xf3e];

/// Any word at all, but for those that end QEMU.
pub(crate) fn any(random: &mut Random) -> u32 {
    let word = random.next() as u32;
    if [word, word >> 16].iter().any(|half| ENDS_QEMU_IN_32.contains(&(half & 0xfff))) {
        return RET;
    }
    let field = |shift: u32, bits: u32| word >> shift & ((1 << bits) - 1);
    let numbers = [field(19, 2), field(16, 3), field(12, 4), field(8, 4), field(5, 3)];
    let writes = word >> 21 == 0xd500_0000 >> 21;
    if writes && lists(&ENDS_QEMU, numbers) { RET } else { word }
}

/// A load or a store by x1, or what else takes an address.
pub(crate) fn transfer(random: &mut Random) -> u32 {
    random.one_of(&TRANSFERS)
}

/// `hvc`, or `smc`, or a `brk`, `hlt`, `svc`.
pub(crate) fn call(random: &mut Random) -> u32 {
    let kind = random.one_of(&[2, 2, 2, 3, 3, 0x20_0000, 0x40_0000, 1]);
    let number = if random.once_in(2) { 0 } else { random.below(0x1_0000) as u32 };
    0xd400_0000 | kind | number << 5
}

/// What waits, or orders, or hints: `wfi` and `wfe` among them.
pub(crate) fn hint(random: &mut Random) -> u32 {
    0xd503_201f | (random.one_of(&[2, 3, 2, 3, 0, 1, 4, 5]) << 5)
}
