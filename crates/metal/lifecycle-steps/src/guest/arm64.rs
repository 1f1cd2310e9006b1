//! The guest on arm64. It starts at its first instruction as after a reset: at EL1, with MMU and caches off.

use super::MEMORY_BYTES;

/// Where the guest's memory begins: its code first, then its table of stage 1.
pub const MEMORY: u64 = 0x4000_0000;
/// Its first instruction.
pub const ENTRY: u64 = MEMORY;
/// Where its vectors are. Only that of an interrupt has instructions, the [`HANDLER`]: nothing else comes.
pub const VECTORS: u64 = MEMORY + 0x800;
/// Where the handler is: an interrupt at EL1, on the stack pointer of EL1.
pub const HANDLER_AT: u64 = VECTORS + 0x280;
/// Where the table is.
pub const TABLE: u64 = MEMORY + 0x1000;
/// The first page that it writes to.
pub const REGION: u64 = MEMORY + MEMORY_BYTES;
/// The register that it reads to ask for an order.
pub const BELL: u64 = 0x0b00_0000;
/// A device that takes a write of four bytes, and wakes another thread.
pub const DOORBELL: u64 = 0x0b01_0000;
/// A device like it, which the guest does not use.
pub const LATER_DOORBELL: u64 = 0x0b02_0000;

/// Words of the program.
pub const WORDS: usize = CODE.len().next_multiple_of(2) + 2 * 9;

/// The program, little endian, for [`MEMORY`]; the GIC's distributor and the redistributor of vCPU 0 are where the
/// arguments say, and the other vCPUs' redistributors follow, 128 KiB each.
pub const fn program(distributor: u64, redistributors: u64) -> [u32; WORDS] {
    let mut program = [0; WORDS];
    let mut at = 0;
    while at < CODE.len() {
        program[at] = CODE[at];
        at += 1;
    }
    at = at.next_multiple_of(2);
    let literals = [
        BELL,
        DOORBELL,
        REGION,
        distributor,
        ATTRIBUTES,
        TRANSLATION,
        TABLE,
        VECTORS,
        redistributors,
    ];
    let mut literal = 0;
    while literal < literals.len() {
        program[at] = literals[literal] as u32;
        program[at + 1] = (literals[literal] >> 32) as u32;
        at += 2;
        literal += 1;
    }
    program
}

// The program, its vectors and the table do not overlap; `VBAR_EL1` has no lower bits; a vector has 128 bytes.
const _: () = assert!(
    MEMORY + 4 * WORDS as u64 <= VECTORS
        && VECTORS.is_multiple_of(0x800)
        && 4 * HANDLER.len() <= 128
        && VECTORS + 0x800 <= TABLE
);

/// The table's first words, the others are zero: the first GiB is devices, the second memory, one to one.
pub const fn table() -> [u64; 2] {
    // Valid, a block, accessed; attribute 1, never executed; attribute 0, inner shareable.
    [1 | 1 << 10 | 1 << 2 | 0b11 << 53, 1 | 1 << 10 | 0b11 << 8 | MEMORY]
}

/// `MAIR_EL1`: attribute 0 is memory that is written back, 1 is devices (nGnRE).
const ATTRIBUTES: u64 = 0x04ff;
/// `TCR_EL1`: 39 bits through `TTBR0_EL1`, none through `TTBR1_EL1`; granules of 4 KiB; 40 bits out.
const TRANSLATION: u64 = 0x19 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32;

/// x20 is the bell's address, x19 how often; x21 is how many interrupts the handler has taken.
const CODE: [u32; 145] = [
    0x5800_1254, //        ldr  x20, bell
    // ask:
    0xf940_0280, //        ldr  x0, [x20]
    0x9240_1c01, //        and  x1, x0, #0xff
    0xd348_fc13, //        lsr  x19, x0, #8
    0xf100_043f, //        cmp  x1, #1
    0x5400_0300, //        b.eq pages
    0xf100_083f, //        cmp  x1, #2
    0x5400_0300, //        b.eq blocks
    0xf100_0c3f, //        cmp  x1, #3
    0x5400_03a0, //        b.eq calls
    0xf100_103f, //        cmp  x1, #4
    0x5400_0400, //        b.eq rings
    0xf100_143f, //        cmp  x1, #5
    0x5400_0460, //        b.eq reads
    0xf100_183f, //        cmp  x1, #6
    0x5400_04c0, //        b.eq caches
    0xf100_1c3f, //        cmp  x1, #7
    0x5400_0620, //        b.eq interrupts
    0xf100_203f, //        cmp  x1, #8
    0x5400_08c0, //        b.eq timers
    0xf100_243f, //        cmp  x1, #9
    0x5400_09e0, //        b.eq sleeps
    0xf100_283f, //        cmp  x1, #10
    0x5400_0b80, //        b.eq sends
    0xf100_2c3f, //        cmp  x1, #11
    0x5400_0ce0, //        b.eq answers
    0xf100_303f, //        cmp  x1, #12
    0x5400_0e40, //        b.eq spread
    0x17ff_ffe5, //        b    ask
    // pages:
    0xd282_0003, //        mov  x3, #0x1000
    0x1400_0002, //        b    touch
    // blocks:
    0xd2a0_0403, //        mov  x3, #0x200000
    // touch:
    0x5800_0ec2, //        ldr  x2, region
    0xf900_0053, // 1:     str  x19, [x2]
    0x8b03_0042, //        add  x2, x2, x3
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_ffa1, //        b.ne 1b
    0x17ff_ffdc, //        b    ask
    // calls:
    0x52b0_8000, //        mov  w0, #0x84000000
    0xd400_0002, //        hvc  #0
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_ffa1, //        b.ne calls
    0x17ff_ffd7, //        b    ask
    // rings:
    0x5800_0d25, //        ldr  x5, doorbell
    0xb900_00b3, // 2:     str  w19, [x5]
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_ffc1, //        b.ne 2b
    0x17ff_ffd2, //        b    ask
    // reads:
    0x5800_0d05, //        ldr  x5, distributor
    0xb940_04a6, // 3:     ldr  w6, [x5, #4]
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_ffc1, //        b.ne 3b
    0x17ff_ffcd, //        b    ask
    // caches:
    0x5800_0ca5, //        ldr  x5, attributes
    0xd518_a205, //        msr  mair_el1, x5
    0x5800_0ca5, //        ldr  x5, translation
    0xd518_2045, //        msr  tcr_el1, x5
    0x5800_0ca5, //        ldr  x5, table
    0xd518_2005, //        msr  ttbr0_el1, x5
    0xd503_3fdf, //        isb
    0xd538_1005, //        mrs  x5, sctlr_el1
    0xb240_00a5, //        orr  x5, x5, #1
    0xb27e_00a5, //        orr  x5, x5, #4
    0xd518_1005, //        msr  sctlr_el1, x5
    0xd503_3fdf, //        isb
    0x17ff_ffc0, //        b    ask
    // interrupts:
    0x5800_0bc5, //        ldr  x5, vectors
    0xd518_c005, //        msr  vbar_el1, x5
    0x5800_0a85, //        ldr  x5, distributor
    0x5280_0246, //        mov  w6, #0x12
    0xb900_00a6, //        str  w6, [x5]
    0x5800_0b65, //        ldr  x5, redistributors
    0xd538_00a6, //        mrs  x6, mpidr_el1
    0x9240_1cc6, //        and  x6, x6, #0xff
    0x8b06_44a5, //        add  x5, x5, x6, lsl #17
    0x9140_40a5, //        add  x5, x5, #0x10, lsl #12
    0x5280_0046, //        mov  w6, #2
    0x72a1_0006, //        movk w6, #0x800, lsl #16
    0xb900_80a6, //        str  w6, [x5, #0x80]
    0xb901_00a6, //        str  w6, [x5, #0x100]
    0xd280_00e6, //        mov  x6, #7
    0xd518_cca6, //        msr  icc_sre_el1, x6
    0xd503_3fdf, //        isb
    0xd280_1e06, //        mov  x6, #0xf0
    0xd518_4606, //        msr  icc_pmr_el1, x6
    0xd280_0026, //        mov  x6, #1
    0xd518_cce6, //        msr  icc_igrpen1_el1, x6
    0xd503_3fdf, //        isb
    0x17ff_ffa9, //        b    ask
    // timers:
    0xd280_0015, //        mov  x21, #0
    0xd51b_e35f, //        msr  cntv_cval_el0, xzr
    0xd280_0026, //        mov  x6, #1
    0xd51b_e326, //        msr  cntv_ctl_el0, x6
    0xd503_3fdf, //        isb
    0xd503_42ff, //        msr  daifclr, #2
    0xb400_0015, // 4:     cbz  x21, 4b
    0xd503_42df, //        msr  daifset, #2
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_fee1, //        b.ne timers
    0x17ff_ff9e, //        b    ask
    // sleeps:
    0xd280_0015, //        mov  x21, #0
    0xd53b_e006, //        mrs  x6, cntfrq_el0
    0xd349_fcc6, //        lsr  x6, x6, #9
    0xd51b_e306, //        msr  cntv_tval_el0, x6
    0xd280_0026, //        mov  x6, #1
    0xd51b_e326, //        msr  cntv_ctl_el0, x6
    0xd503_3fdf, //        isb
    0xd503_207f, // 5:     wfi
    0xd503_42ff, //        msr  daifclr, #2
    0xd503_3fdf, //        isb
    0xd503_42df, //        msr  daifset, #2
    0xb4ff_ff95, //        cbz  x21, 5b
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_fe61, //        b.ne sleeps
    0x17ff_ff8f, //        b    ask
    // sends:
    0xd280_0015, //        mov  x21, #0
    0x5280_0046, //        mov  w6, #2
    0x72a0_2006, //        movk w6, #0x100, lsl #16
    0xd518_cba6, //        msr  icc_sgi1r_el1, x6
    0xd503_3fdf, //        isb
    0xd503_207f, // 6:     wfi
    0xd503_42ff, //        msr  daifclr, #2
    0xd503_3fdf, //        isb
    0xd503_42df, //        msr  daifset, #2
    0xb4ff_ff95, //        cbz  x21, 6b
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_fea1, //        b.ne sends
    0x17ff_ff82, //        b    ask
    // answers:
    0xd280_0015, //        mov  x21, #0
    0xd503_207f, // 7:     wfi
    0xd503_42ff, //        msr  daifclr, #2
    0xd503_3fdf, //        isb
    0xd503_42df, //        msr  daifset, #2
    0xb4ff_ff95, //        cbz  x21, 7b
    0x5280_0026, //        mov  w6, #1
    0x72a0_2006, //        movk w6, #0x100, lsl #16
    0xd518_cba6, //        msr  icc_sgi1r_el1, x6
    0xd503_3fdf, //        isb
    0xf100_0673, //        subs x19, x19, #1
    0x54ff_fea1, //        b.ne answers
    0x17ff_ff75, //        b    ask
    // spread:
    0xd368_fc03, //        lsr  x3, x0, #40
    0xd374_cc63, //        lsl  x3, x3, #12
    0x9240_7e73, //        and  x19, x19, #0xffffffff
    0x17ff_ff90, //        b    touch
                 // The addresses and values of `program` follow, eight bytes each.
];

/// The handler of interrupts, little endian, for [`HANDLER_AT`]. It turns the timer off, and so its level falls before the
/// interrupt is ended.
pub const HANDLER: [u32; 6] = [
    0xd538_cc0a, //        mrs  x10, icc_iar1_el1
    0xd51b_e33f, //        msr  cntv_ctl_el0, xzr
    0xd503_3fdf, //        isb
    0xd518_cc2a, //        msr  icc_eoir1_el1, x10
    0x9100_06b5, //        add  x21, x21, #1
    0xd69f_03e0, //        eret
];

/// Writes the guest's program, its handler and its table to the memory that it begins with. `write` takes the distance
/// from [`MEMORY`], and the bytes. The other arguments are those of [`program`].
///
/// # Errors
///
/// That of `write`.
pub fn install<E>(
    distributor: u64,
    redistributors: u64,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for (at, word) in (0..).step_by(4).zip(program(distributor, redistributors)) {
        write(at, &word.to_le_bytes())?;
    }
    for (at, word) in (HANDLER_AT - MEMORY..).step_by(4).zip(HANDLER) {
        write(at, &word.to_le_bytes())?;
    }
    for (at, word) in (TABLE - MEMORY..).step_by(8).zip(table()) {
        write(at, &word.to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the literal that the `LDR` at `word` loads is, as a word of the program.
    fn literal(word: usize) -> usize {
        let instruction = CODE[word];
        assert_eq!(instruction >> 24, 0x58, "word {word} is an LDR of a literal");
        word + (instruction >> 5 & 0x7_ffff) as usize
    }

    #[test]
    fn every_literal_is_where_the_code_loads_it_from() {
        let program = program(0x1_0000_0008, 0x1_0010_0000);
        let loads = CODE.iter().enumerate().filter(|(_, word)| *word >> 24 == 0x58);
        let expected = [
            BELL,
            REGION,
            DOORBELL,
            0x1_0000_0008,
            ATTRIBUTES,
            TRANSLATION,
            TABLE,
            VECTORS,
            0x1_0000_0008,
            0x1_0010_0000,
        ];
        assert_eq!(loads.clone().count(), expected.len());
        for (word, value) in loads.map(|(word, _)| word).zip(expected) {
            let at = literal(word);
            assert_eq!(at % 2, 0, "aligned to eight bytes");
            let found = u64::from(program[at]) | u64::from(program[at + 1]) << 32;
            assert_eq!(found, value, "word {word}");
        }
    }

    #[test]
    fn every_branch_stays_in_the_code() {
        for (at, instruction) in CODE.iter().enumerate() {
            let signed =
                |bits: u32, width: u32| (bits << (32 - width)).cast_signed() >> (32 - width);
            let distance = match instruction {
                i if i >> 26 == 0b00_0101 => signed(i & 0x3ff_ffff, 26),
                i if i >> 24 == 0x54 || i >> 24 == 0xb4 => signed(i >> 5 & 0x7_ffff, 19),
                _ => continue,
            };
            let to = i32::try_from(at).unwrap() + distance;
            assert!(
                (1..i32::try_from(CODE.len()).unwrap()).contains(&to),
                "word {at} leads to {to}"
            );
        }
    }
}
