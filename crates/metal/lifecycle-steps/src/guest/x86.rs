//! The guest on x86-64. It starts at [`ENTRY`] in 64 bits, at ring 0, with interrupts masked, by tables that map each address
//! to itself.

/// Where the guest's memory begins.
pub const MEMORY: u64 = 0;
/// Its first instruction.
pub const ENTRY: u64 = 0x1_0000;
/// Its page tables: one of each of the upper two levels, and one for each GiB.
pub const TABLES: u64 = 0x9000;
/// Its descriptors: none, none, code of 64 bits, and data.
pub const DESCRIPTORS: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
/// Where they are.
pub const DESCRIPTORS_AT: u64 = 0x1000;
/// Where the gates of its interrupts are. Behind the next page, to the tables, are the stacks of its two vCPUs.
const GATES: u64 = 0x2000;
/// Where vCPU 1 begins, in real mode, when vCPU 0 starts it.
const START_UP_AT: u64 = 0x3000;
/// The vectors that come: the timer's, and those of other vCPUs.
const VECTORS: [u64; 2] = [0x40, 0x41];
/// The first page that it writes to.
pub const REGION: u64 = MEMORY + super::MEMORY_BYTES;
/// The register that it reads to ask for an order. It is above all memory, as are the two doorbells.
pub const BELL: u64 = 0xd000_0000;
/// A device that takes a write of four bytes, and wakes another thread.
pub const DOORBELL: u64 = 0xd001_0000;
/// A device like it, which the guest does not use.
pub const LATER_DOORBELL: u64 = 0xd002_0000;
/// The IOAPIC.
pub const IOAPIC: u64 = 0xfec0_0000;

/// How many GiB its tables map, by blocks.
const GIBS: u64 = 4;
const BLOCK: u64 = 2 << 20;
/// Of an entry: present, writable, accessed; of one that maps a block also dirty, and that it does. So no walk writes to them.
const TABLE_BITS: u64 = 0b10_0011;
const BLOCK_BITS: u64 = TABLE_BITS | 1 << 6 | 1 << 7;

// The program is behind the tables.
const _: () = assert!(TABLES + (2 + GIBS) * 0x1000 <= ENTRY);

/// Writes the guest's program and its tables to the memory that it begins with. `write` takes the distance from [`MEMORY`],
/// and the bytes.
///
/// # Errors
///
/// That of `write`.
pub fn install<E>(mut write: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
    let (upper, lower) = (TABLES + 0x1000, TABLES + 0x2000);
    write(ENTRY, &CODE)?;
    write(START_UP_AT, &START_UP)?;
    for (at, descriptor) in (DESCRIPTORS_AT..).step_by(8).zip(DESCRIPTORS) {
        write(at, &descriptor.to_le_bytes())?;
    }
    for vector in VECTORS {
        for (at, word) in (GATES + vector * 16..).step_by(8).zip(gate(ENTRY + HANDLER)) {
            write(at, &word.to_le_bytes())?;
        }
    }
    write(TABLES, &(upper | TABLE_BITS).to_le_bytes())?;
    for gib in 0..GIBS {
        write(upper + gib * 8, &((lower + gib * 0x1000) | TABLE_BITS).to_le_bytes())?;
    }
    for block in 0..GIBS << 9 {
        write(lower + block * 8, &((block * BLOCK) | BLOCK_BITS).to_le_bytes())?;
    }
    Ok(())
}

/// The gate of an interrupt whose handler is there: it masks interrupts.
const fn gate(handler: u64) -> [u64; 2] {
    let low = handler & 0xffff | 0x10 << 16 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// r15 is the bell's address, r12 how often; r14 is how many interrupts the handler has taken. The numbers of MSRs: 0x1b is
/// where the local APIC is and in which mode, 0x6e0 the timer's deadline, and from 0x800 on its registers in x2APIC mode:
/// its ID (0x802), the end of an interrupt (0x80b), whether it is on (0x80f), commands (0x830) and the timer (0x832).
#[rustfmt::skip]
const CODE: [u8; 0x1df] = [
    0x41, 0xbf, 0x00, 0x00, 0x00, 0xd0, //                              mov    r15d, BELL
    // ask:
    0x49, 0x8b, 0x07, //                                                mov    rax, [r15]
    0x0f, 0xb6, 0xc8, //                                                movzx  ecx, al
    0x49, 0x89, 0xc4, //                                                mov    r12, rax
    0x49, 0xc1, 0xec, 0x08, //                                          shr    r12, 0x8
    0x83, 0xf9, 0x01, //                                                cmp    ecx, 0x1
    0x74, 0x48, //                                                      je     pages
    0x83, 0xf9, 0x02, //                                                cmp    ecx, 0x2
    0x74, 0x4a, //                                                      je     blocks
    0x83, 0xf9, 0x03, //                                                cmp    ecx, 0x3
    0x74, 0x5c, //                                                      je     calls
    0x83, 0xf9, 0x04, //                                                cmp    ecx, 0x4
    0x74, 0x67, //                                                      je     rings
    0x83, 0xf9, 0x05, //                                                cmp    ecx, 0x5
    0x74, 0x74, //                                                      je     reads
    0x83, 0xf9, 0x07, //                                                cmp    ecx, 0x7
    0x0f, 0x84, 0x8d, 0x00, 0x00, 0x00, //                              je     interrupts
    0x83, 0xf9, 0x08, //                                                cmp    ecx, 0x8
    0x0f, 0x84, 0xea, 0x00, 0x00, 0x00, //                              je     timers
    0x83, 0xf9, 0x09, //                                                cmp    ecx, 0x9
    0x0f, 0x84, 0x03, 0x01, 0x00, 0x00, //                              je     sleeps
    0x83, 0xf9, 0x0a, //                                                cmp    ecx, 0xa
    0x0f, 0x84, 0x2c, 0x01, 0x00, 0x00, //                              je     sends
    0x83, 0xf9, 0x0b, //                                                cmp    ecx, 0xb
    0x0f, 0x84, 0x49, 0x01, 0x00, 0x00, //                              je     answers
    0x83, 0xf9, 0x0c, //                                                cmp    ecx, 0xc
    0x74, 0x54, //                                                      je     spread
    0xeb, 0xa6, //                                                      jmp    ask
    // pages:
    0xba, 0x00, 0x10, 0x00, 0x00, //                                    mov    edx, 0x1000
    0xeb, 0x05, //                                                      jmp    touch
    // blocks:
    0xba, 0x00, 0x00, 0x20, 0x00, //                                    mov    edx, 0x200000
    // touch:
    0xbe, 0x00, 0x00, 0x20, 0x00, //                                    mov    esi, REGION
    0x4c, 0x89, 0x26, //                                             1: mov    [rsi], r12
    0x48, 0x01, 0xd6, //                                                add    rsi, rdx
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xf5, //                                                      jnz    1b
    0xeb, 0x88, //                                                      jmp    ask
    // calls:
    0x31, 0xc0, //                                                      xor    eax, eax
    0x31, 0xc9, //                                                      xor    ecx, ecx
    0x0f, 0xa2, //                                                      cpuid
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xf5, //                                                      jnz    calls
    0xe9, 0x78, 0xff, 0xff, 0xff, //                                    jmp    ask
    // rings:
    0xbe, 0x00, 0x00, 0x01, 0xd0, //                                    mov    esi, DOORBELL
    0x44, 0x89, 0x26, //                                             2: mov    [rsi], r12d
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xf8, //                                                      jnz    2b
    0xe9, 0x66, 0xff, 0xff, 0xff, //                                    jmp    ask
    // reads:
    0xbe, 0x00, 0x00, 0xc0, 0xfe, //                                    mov    esi, IOAPIC
    0x8b, 0x46, 0x10, //                                             3: mov    eax, [rsi+0x10]
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xf8, //                                                      jnz    3b
    0xe9, 0x54, 0xff, 0xff, 0xff, //                                    jmp    ask
    // spread:
    0x48, 0x89, 0xc2, //                                                mov    rdx, rax
    0x48, 0xc1, 0xea, 0x28, //                                          shr    rdx, 0x28
    0x48, 0xc1, 0xe2, 0x0c, //                                          shl    rdx, 0xc
    0x45, 0x89, 0xe4, //                                                mov    r12d, r12d
    0xeb, 0xaa, //                                                      jmp    touch
    // interrupts:
    0xb9, 0x1b, 0x00, 0x00, 0x00, //                                    mov    ecx, 0x1b
    0x0f, 0x32, //                                                      rdmsr
    0x0d, 0x00, 0x0c, 0x00, 0x00, //                                    or     eax, 0xc00
    0x0f, 0x30, //                                                      wrmsr
    0x0f, 0x01, 0x1d, 0xfe, 0x00, 0x00, 0x00, //                        lidt   [rip + idtr]
    0xb9, 0x0f, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x80f
    0xb8, 0xff, 0x01, 0x00, 0x00, //                                    mov    eax, 0x1ff
    0x31, 0xd2, //                                                      xor    edx, edx
    0x0f, 0x30, //                                                      wrmsr
    0xb9, 0x32, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x832
    0xb8, 0x40, 0x00, 0x04, 0x00, //                                    mov    eax, 0x40040
    0x0f, 0x30, //                                                      wrmsr
    0xb9, 0x02, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x802
    0x0f, 0x32, //                                                      rdmsr
    0xbc, 0x00, 0x80, 0x00, 0x00, //                                    mov    esp, 0x8000
    0x85, 0xc0, //                                                      test   eax, eax
    0x74, 0x0a, //                                                      je     first
    0xbc, 0x00, 0x70, 0x00, 0x00, //                                    mov    esp, 0x7000
    0xe9, 0xfb, 0xfe, 0xff, 0xff, //                                    jmp    ask
    // first:
    0xb9, 0x30, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x830
    0xba, 0x01, 0x00, 0x00, 0x00, //                                    mov    edx, 0x1
    0xb8, 0x00, 0x45, 0x00, 0x00, //                                    mov    eax, 0x4500
    0x0f, 0x30, //                                                      wrmsr
    0xb8, 0x03, 0x46, 0x00, 0x00, //                                    mov    eax, 0x4603
    0x0f, 0x30, //                                                      wrmsr
    0xe9, 0xde, 0xfe, 0xff, 0xff, //                                    jmp    ask
    // timers:
    0x45, 0x31, 0xf6, //                                                xor    r14d, r14d
    0xb9, 0xe0, 0x06, 0x00, 0x00, //                                    mov    ecx, 0x6e0
    0xb8, 0x01, 0x00, 0x00, 0x00, //                                    mov    eax, 0x1
    0x31, 0xd2, //                                                      xor    edx, edx
    0x0f, 0x30, //                                                      wrmsr
    0xfb, //                                                            sti
    0x4d, 0x85, 0xf6, //                                             4: test   r14, r14
    0x74, 0xfb, //                                                      jz     4b
    0xfa, //                                                            cli
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xe3, //                                                      jnz    timers
    0xe9, 0xbc, 0xfe, 0xff, 0xff, //                                    jmp    ask
    // sleeps:
    0x45, 0x31, 0xf6, //                                                xor    r14d, r14d
    0x0f, 0x31, //                                                      rdtsc
    0x48, 0xc1, 0xe2, 0x20, //                                          shl    rdx, 0x20
    0x48, 0x09, 0xd0, //                                                or     rax, rdx
    0x48, 0x05, 0x80, 0x84, 0x1e, 0x00, //                              add    rax, 0x1e8480
    0x48, 0x89, 0xc2, //                                                mov    rdx, rax
    0x48, 0xc1, 0xea, 0x20, //                                          shr    rdx, 0x20
    0xb9, 0xe0, 0x06, 0x00, 0x00, //                                    mov    ecx, 0x6e0
    0x0f, 0x30, //                                                      wrmsr
    0xfb, //                                                         5: sti
    0xf4, //                                                            hlt
    0xfa, //                                                            cli
    0x4d, 0x85, 0xf6, //                                                test   r14, r14
    0x74, 0xf8, //                                                      jz     5b
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xd3, //                                                      jnz    sleeps
    0xe9, 0x8a, 0xfe, 0xff, 0xff, //                                    jmp    ask
    // sends:
    0x45, 0x31, 0xf6, //                                                xor    r14d, r14d
    0xb9, 0x30, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x830
    0xba, 0x01, 0x00, 0x00, 0x00, //                                    mov    edx, 0x1
    0xb8, 0x41, 0x40, 0x00, 0x00, //                                    mov    eax, 0x4041
    0x0f, 0x30, //                                                      wrmsr
    0xfb, //                                                         6: sti
    0xf4, //                                                            hlt
    0xfa, //                                                            cli
    0x4d, 0x85, 0xf6, //                                                test   r14, r14
    0x74, 0xf8, //                                                      jz     6b
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xdf, //                                                      jnz    sends
    0xe9, 0x64, 0xfe, 0xff, 0xff, //                                    jmp    ask
    // answers:
    0x45, 0x31, 0xf6, //                                                xor    r14d, r14d
    0xfb, //                                                         7: sti
    0xf4, //                                                            hlt
    0xfa, //                                                            cli
    0x4d, 0x85, 0xf6, //                                                test   r14, r14
    0x74, 0xf8, //                                                      jz     7b
    0xb9, 0x30, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x830
    0x31, 0xd2, //                                                      xor    edx, edx
    0xb8, 0x41, 0x40, 0x00, 0x00, //                                    mov    eax, 0x4041
    0x0f, 0x30, //                                                      wrmsr
    0x49, 0xff, 0xcc, //                                                dec    r12
    0x75, 0xe2, //                                                      jnz    answers
    0xe9, 0x41, 0xfe, 0xff, 0xff, //                                    jmp    ask
    // handler:
    0x49, 0xff, 0xc6, //                                                inc    r14
    0xb9, 0x0b, 0x08, 0x00, 0x00, //                                    mov    ecx, 0x80b
    0x31, 0xc0, //                                                      xor    eax, eax
    0x31, 0xd2, //                                                      xor    edx, edx
    0x0f, 0x30, //                                                      wrmsr
    0x48, 0xcf, //                                                      iretq
    // idtr:
    0x1f, 0x04, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //    where its gates are
];

/// Where the handler of interrupts is in the code.
const HANDLER: u64 = 0x1c5;

/// What vCPU 1 begins with, in real mode: it goes to 64 bits by the tables, and to [`ENTRY`].
#[rustfmt::skip]
const START_UP: [u8; 0x41] = [
    0xfa, //                                         cli
    0x2e, 0x66, 0x0f, 0x01, 0x16, 0x3b, 0x00, //     lgdt  cs:[descriptors]
    0x66, 0xb8, 0x20, 0x00, 0x00, 0x00, //           mov   eax, 0x20
    0x0f, 0x22, 0xe0, //                             mov   cr4, eax
    0x66, 0xb8, 0x00, 0x90, 0x00, 0x00, //           mov   eax, TABLES
    0x0f, 0x22, 0xd8, //                             mov   cr3, eax
    0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0, //           mov   ecx, 0xc0000080
    0x0f, 0x32, //                                   rdmsr
    0x66, 0x0d, 0x00, 0x01, 0x00, 0x00, //           or    eax, 0x100
    0x0f, 0x30, //                                   wrmsr
    0x66, 0xb8, 0x11, 0x00, 0x00, 0x80, //           mov   eax, 0x80000011
    0x0f, 0x22, 0xc0, //                             mov   cr0, eax
    0x66, 0xea, 0x00, 0x00, 0x01, 0x00, 0x10, 0x00, //  jmp   0x10:ENTRY
    // descriptors:
    0x1f, 0x00, 0x00, 0x10, 0x00, 0x00, //           where they are
];

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn memory() -> Vec<u8> {
        let mut memory = vec![0; super::super::MEMORY_BYTES as usize];
        let written: Result<(), ()> = install(|at, bytes| {
            memory[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        written.unwrap();
        memory
    }

    #[test]
    fn the_code_has_the_addresses_that_it_uses() {
        let loads = |opcode: u8, address: u64| {
            let word = (address as u32).to_le_bytes();
            CODE.windows(5).filter(|five| five[0] == opcode && five[1..] == word).count()
        };
        assert_eq!(loads(0xbf, BELL), 1);
        for address in [REGION, DOORBELL, IOAPIC] {
            assert_eq!(loads(0xbe, address), 1, "{address:#x}");
        }
    }

    #[test]
    fn what_comes_by_a_vector_is_the_handler_and_vcpu_1_begins_as_vcpu_0() {
        let memory = memory();
        let word = |at: u64| u64::from_le_bytes(memory[at as usize..][..8].try_into().unwrap());
        for vector in VECTORS {
            let low = word(GATES + vector * 16);
            let handler =
                (low & 0xffff) | (low >> 48 << 16) | (word(GATES + vector * 16 + 8) << 32);
            // It begins with `inc r14`.
            assert_eq!(memory[handler as usize..][..3], [0x49, 0xff, 0xc6]);
            assert_eq!(low >> 16 & 0xffff, 0x10);
        }
        // The last bytes of the code name the gates, as far as the last vector, and those of the start-up the descriptors.
        let limit = (VECTORS[1] + 1) * 16 - 1;
        assert_eq!(
            CODE[CODE.len() - 10..],
            [&(limit as u16).to_le_bytes()[..], &GATES.to_le_bytes()].concat()
        );
        let limit = size_of_val(&DESCRIPTORS) as u16 - 1;
        let at = (DESCRIPTORS_AT as u32).to_le_bytes();
        assert_eq!(START_UP[0x3b..], [&limit.to_le_bytes()[..], &at].concat());
        assert_eq!(START_UP[0x35..0x39], (ENTRY as u32).to_le_bytes());
        // The page of the start-up is the vector of the command that starts it.
        assert!(CODE.windows(5).any(|five| five == [0xb8, (START_UP_AT >> 12) as u8, 0x46, 0, 0]));
    }

    #[test]
    fn the_tables_map_each_address_to_itself() {
        let memory = memory();
        let entry = |table: u64, index: u64| {
            let at = (table + index * 8) as usize;
            u64::from_le_bytes(memory[at..at + 8].try_into().unwrap())
        };
        let next = |entry: u64| {
            assert_eq!(entry & 0xfff, TABLE_BITS);
            entry & !0xfff
        };
        for address in [0, ENTRY, REGION, BELL, DOORBELL, IOAPIC, (4 << 30) - 1] {
            let directory = next(entry(next(entry(TABLES, 0)), address >> 30));
            let block = entry(directory, address >> 21 & 511);
            assert_eq!(block, (address / BLOCK * BLOCK) | BLOCK_BITS, "{address:#x}");
        }
    }
}
