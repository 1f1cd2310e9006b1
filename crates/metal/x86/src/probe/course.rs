//! What is tried, and what comes of it.

use x86_64::instructions::port::Port;

use super::vectors;
use super::watched::{debugging, non_maskable};
use crate::kernel::console::say;
use crate::kernel::entry::{arguments, number};
use crate::kernel::power::stop;
use crate::kernel::tried::{Outcome, bare, prepare, with};

const UNDEFINED: Outcome = Outcome::Raised(6);
const PROTECTION: Outcome = Outcome::Raised(13);
const IOAPIC: u64 = 0xfec0_0000;
const APIC: u64 = 0xfee0_0000;
/// scripts/metal-x86 gives this VM 64 MiB.
const MEMORY_END: u64 = 64 << 20;
const NOWHERE: u64 = 0xd000_0000;
/// Ports of devices, which do more than say something.
const POWER: core::ops::Range<u16> = 0x600..0x603;
const UART: core::ops::Range<u16> = 0x3f8..0x400;

const READ: &[u8] = &[0x8b, 0x02]; // mov eax, [rdx]
const WRITE: &[u8] = &[0x89, 0x02]; // mov [rdx], eax
const RDMSR: &[u8] = &[0x0f, 0x32];
const WRMSR: &[u8] = &[0x0f, 0x30];

/// From `start.S`, with the address of the command line.
#[unsafe(no_mangle)]
extern "C" fn begin(line: u64) -> ! {
    prepare();
    let line = arguments(line);
    if line.contains("measures") {
        measures();
        end(line);
    }
    instructions();
    steps();
    control();
    registers();
    addresses();
    interrupts();
    ports();
    xsave();
    at_random(number(line, "seed=").unwrap_or(1), number(line, "rounds=").unwrap_or(1000));
    say!("all was tried");
    end(line);
}

/// Ends the machine as it is told to.
fn end(line: &str) -> ! {
    if line.contains("ends=triple") {
        // A table of exceptions that has none, and one.
        let empty = [0_u8; 10];
        with(&[0x0f, 0x01, 0x1a, 0x0f, 0x0b], 0, 0, empty.as_ptr() as u64); // lidt [rdx]; ud2
    } else if line.contains("ends=nowhere") {
        with(&[0x0f, 0x22, 0xda], 0, 0, NOWHERE); // mov cr3, rdx
    } else {
        // SAFETY: the ACPI's sleep control register.
        unsafe { Port::<u8>::new(POWER.start).write(0x34) }
    }
    say!("FAILED: it goes on");
    stop()
}

/// Says so if it is not as it is to be.
fn expect(what: &str, is: Outcome, wanted: Outcome) {
    if is != wanted {
        say!("FAILED: {what}: {is:x?}, and not {wanted:x?}");
    }
}

/// Instructions that guests do not have.
fn instructions() {
    for (name, code) in [
        ("VMRUN", [0x0f, 0x01, 0xd8]),
        ("VMLOAD", [0x0f, 0x01, 0xda]),
        ("VMSAVE", [0x0f, 0x01, 0xdb]),
        ("STGI", [0x0f, 0x01, 0xdc]),
        ("CLGI", [0x0f, 0x01, 0xdd]),
        ("SKINIT", [0x0f, 0x01, 0xde]),
        ("INVLPGA", [0x0f, 0x01, 0xdf]),
        ("MONITOR", [0x0f, 0x01, 0xc8]),
        ("MWAIT", [0x0f, 0x01, 0xc9]),
        ("XSETBV", [0x0f, 0x01, 0xd1]),
        ("VMCALL of Intel's", [0x0f, 0x01, 0xc1]),
    ] {
        expect(name, bare(&code), UNDEFINED);
    }
    expect("RDPRU", bare(&[0x0f, 0x01, 0xfd]), UNDEFINED);
    expect("RDPMC", bare(&[0x0f, 0x33]), PROTECTION);
    expect("XGETBV, without CR4.OSXSAVE", bare(&[0x0f, 0x01, 0xd0]), UNDEFINED);
    expect("INVD", bare(&[0x0f, 0x08]), Outcome::Done(0, 0));
    expect("WBINVD", bare(&[0x0f, 0x09]), Outcome::Done(0, 0));
    expect("a call", bare(&[0x0f, 0x01, 0xd9]), Outcome::Done((-1000_i64).cast_unsigned(), 0));
    expect("INT3", bare(&[0xcc]), Outcome::Raised(3));
    // CPUID with a prefix, and at the end of the longest instruction.
    expect(
        "a CPUID with prefixes",
        with(&[0x66, 0x66, 0x2e, 0x0f, 0xa2, 0x31, 0xd2, 0x31, 0xc0], 0, 0, 0),
        Outcome::Done(0, 0),
    );
    for leaf in (0..0x100).chain(0x4000_0000..0x4000_0100).chain(0x8000_0000..0x8000_0100) {
        let _ = with(&[0x53, 0x0f, 0xa2, 0x5b], leaf, 0, 0); // push rbx; cpuid; pop rbx
    }
    say!("instructions were tried");
}

/// Single steps, over an instruction that the CPU executes, and over those that it comes out for: each ends behind the
/// instruction, without RF, and DR6 says what it was.
fn steps() {
    // mov r9, rsp; mov r10d, ss; push r10; push r9; push RF and TF; mov r10d, cs; push r10; lea r10, [rip + 4]; push r10; iretq
    const STEP: &[u8] = &[
        0x49, 0x89, 0xe1, 0x41, 0x8c, 0xd2, 0x41, 0x52, 0x41, 0x51, 0x68, 0x02, 0x01, 0x01, 0x00,
        0x41, 0x8c, 0xca, 0x41, 0x52, 0x4c, 0x8d, 0x15, 0x04, 0x00, 0x00, 0x00, 0x41, 0x52, 0x48,
        0xcf,
    ];
    const RESUMES: u64 = 1 << 16;
    const STEPPED: u64 = 1 << 14;
    let Outcome::Done(cr4, _) = bare(&[0x0f, 0x20, 0xe0]) else { return say!("FAILED: no CR4") };
    for (name, code, rax, rcx, rdx) in [
        ("NOP", &[0x90][..], 0, 0, 0),
        ("CPUID", &[0x0f, 0xa2], 0, 0, 0),
        ("RDMSR", RDMSR, 0, 0xc000_0080, 0),
        ("MOV to CR4", &[0x0f, 0x22, 0xe0], cr4, 0, 0),
        ("a call", &[0x0f, 0x01, 0xd9], 0, 0, 0),
        ("a port that is not there", &[0xec], 0, 0, 0x80), // in al, dx
        ("a port of a device", &[0xee], 0, 0, 0x3ff),      // out dx, al
        ("a read of a device", READ, 0, 0, IOAPIC),
        ("a write to a device", WRITE, 0, 0, IOAPIC),
        ("ADD to a device", &[0x83, 0x02, 0x00], 0, 0, IOAPIC), // add dword [rdx], 0
        ("a read of its APIC", READ, 0, 0, APIC + 0x30),
        ("HLT", &[0xf4], 0, 0, 0),
    ] {
        let mut bytes = [0x90; 40];
        let end = STEP.len() + code.len();
        bytes[..STEP.len()].copy_from_slice(STEP);
        bytes[STEP.len()..end].copy_from_slice(code);
        let said = debugging(&bytes, rax, rcx, rdx);
        let is_step = said.is_some_and(|said| {
            said.behind == end as u64 && said.flags & RESUMES == 0 && said.status & STEPPED != 0
        });
        if !is_step {
            say!(
                "FAILED: a single step over {name}, of {end} bytes with what is before it: {said:x?}"
            );
        }
    }
    say!("single steps were tried");
}

/// Bits of CR4 that guests do not have, and those of long mode.
fn control() {
    // mov rax, cr4; xor rax, rcx; mov cr4, rax
    const CHANGE: &[u8] = &[0x0f, 0x20, 0xe0, 0x48, 0x31, 0xc8, 0x0f, 0x22, 0xe0];
    const READ_CR4: &[u8] = &[0x0f, 0x20, 0xe0]; // mov rax, cr4
    let change = |bit: u32| with(CHANGE, 0, 1 << bit, 0);
    let Outcome::Done(before, _) = bare(READ_CR4) else { return say!("FAILED: there is no CR4") };
    // MCE, LA57, VMXE, PCIDE, PKE, CET, and one that has no name; and PAE, without which it does not go on.
    for bit in [6, 12, 13, 17, 22, 23, 63, 5] {
        expect("a bit of CR4", change(bit), PROTECTION);
        expect("CR4", bare(READ_CR4), Outcome::Done(before, 0));
    }
    // TSD, PGE, and OSFXSR, by R9 and a prefix too: mov r9, cr4; xor r9, rcx; mov cr4, r9; mov rax, cr4
    for bit in [2, 7, 9] {
        let code = &[
            0x41, 0x0f, 0x20, 0xe1, 0x49, 0x31, 0xc9, 0x66, 0x41, 0x0f, 0x22, 0xe1, 0x0f, 0x20,
            0xe0,
        ];
        for value in [before ^ 1 << bit, before] {
            expect("CR4, changed", with(code, 0, 1 << bit, 0), Outcome::Done(value, 0));
        }
    }
    say!("CR4 was tried");
}

/// XCR0 and what it turns on, which the scripts' machines have: x87, SSE and AVX.
fn xsave() {
    const XGETBV: &[u8] = &[0x0f, 0x01, 0xd0];
    const XSETBV: &[u8] = &[0x0f, 0x01, 0xd1];
    // push rbx; cpuid; mov rax, rbx; mov rdx, rcx; pop rbx: EBX and ECX of a leaf
    const CPUID: &[u8] = &[0x53, 0x0f, 0xa2, 0x89, 0xd8, 0x89, 0xca, 0x5b];
    let is_on = || match with(CPUID, 1, 0, 0) {
        Outcome::Done(_, features) => features >> 26 & 3,
        Outcome::Raised(_) => 0,
    };
    if is_on() != 1 {
        say!("FAILED: there is no XSAVE, or it is on");
    }
    // mov rax, cr4; bts eax, 18; mov cr4, rax
    let turn_on = &[0x0f, 0x20, 0xe0, 0x0f, 0xba, 0xe8, 0x12, 0x0f, 0x22, 0xe0];
    let _ = bare(turn_on);
    if is_on() != 3 {
        say!("FAILED: CPUID does not say that XSAVE is on");
    }
    expect("XCR0 after reset", bare(XGETBV), Outcome::Done(1, 0));
    expect("the area of x87", with(CPUID, 0xd, 0, 0), Outcome::Done(576, 832));
    for value in [0, 2, 4, 5, 6, 8, 0x10, 0x18, 0x100, 1 << 63 | 1] {
        let (low, high) = (value & 0xffff_ffff, value >> 32);
        expect("a value of XCR0 that there is not", with(XSETBV, low, 0, high), PROTECTION);
    }
    expect("XCR1", with(XSETBV, 1, 1, 0), PROTECTION);
    expect("XCR0 with AVX", with(XSETBV, 7, 0, 0), Outcome::Done(7, 0));
    expect("XCR0", bare(XGETBV), Outcome::Done(7, 0));
    expect("the area of AVX", with(CPUID, 0xd, 0, 0), Outcome::Done(832, 832));
    vectors::two_vcpus();
    say!("vectors were tried");
}

/// MSRs that guests do not have, and values that those have not that they do.
fn registers() {
    let read = |msr: u64| with(RDMSR, 0, msr, 0);
    let write = |msr: u64, value: u64| with(WRMSR, value & 0xffff_ffff, msr, value >> 32);
    for msr in [
        0x1a0,
        0x1d9,
        0x200,
        0x400,
        0xc001_0114,
        0xc001_0117,
        0xc001_1020,
        0x1234_5678,
        0xffff_ffff,
    ] {
        expect("to read an MSR that is not there", read(msr), PROTECTION);
        expect("to write an MSR that is not there", write(msr, 0), PROTECTION);
    }
    let Outcome::Done(efer, _) = read(0xc000_0080) else { return say!("FAILED: there is no EFER") };
    expect("EFER.SVME", write(0xc000_0080, efer | 1 << 12), PROTECTION);
    expect("EFER.LME in long mode", write(0xc000_0080, efer & !(1 << 8)), PROTECTION);
    expect("a type of memory that there is not", write(0x277, 2), PROTECTION);
    expect(
        "the clock where there is no memory",
        write(0x4b56_4d01, NOWHERE | 1),
        Outcome::Done(NOWHERE | 1, 0),
    );
    expect(
        "the clock at the end of the address space",
        write(0x4b56_4d01, u64::MAX),
        Outcome::Done(0xffff_ffff, 0xffff_ffff),
    );
    expect("the clock, off", write(0x4b56_4d01, 0), Outcome::Done(0, 0));
    say!("MSRs were tried");
}

/// Addresses where no memory is.
fn addresses() {
    expect("to read nothing", with(READ, 0, 0, NOWHERE), Outcome::Done(0xffff_ffff, NOWHERE));
    expect("to write nothing", with(WRITE, 7, 0, NOWHERE), Outcome::Done(7, NOWHERE));
    expect("to execute nothing", with(&[0xff, 0xe2], 0, 0, NOWHERE), PROTECTION); // jmp rdx
    // An access of which the first part lies in memory, and the second in nothing.
    for (name, code) in [("to read over the end", READ), ("to write over the end", WRITE)] {
        for behind in 1..4 {
            expect(name, with(code, 0, 0, MEMORY_END - behind), PROTECTION);
        }
    }
    // The IOAPIC: its select register is what was written, in each of the ways that are carried out.
    expect("to write the IOAPIC", with(WRITE, 1, 0, IOAPIC), Outcome::Done(1, IOAPIC));
    expect("to read the IOAPIC", with(READ, 0, 0, IOAPIC), Outcome::Done(1, IOAPIC));
    expect("a byte", with(&[0x0f, 0xb6, 0x02], 0, 0, IOAPIC), Outcome::Done(1, IOAPIC)); // movzx eax, byte [rdx]
    expect("ADD to memory", with(&[0x83, 0x02, 0x02], 0, 0, IOAPIC), Outcome::Done(0, IOAPIC)); // add dword [rdx], 2
    expect("OR from memory", with(&[0x0b, 0x02], 0x10, 0, IOAPIC), Outcome::Done(0x13, IOAPIC)); // or eax, [rdx]
    expect("XCHG", with(&[0x87, 0x02], 1, 0, IOAPIC), Outcome::Done(3, IOAPIC)); // xchg [rdx], eax
    expect("the version", with(READ, 0, 0, IOAPIC + 0x10), Outcome::Done(0x17_0020, IOAPIC + 0x10));
    // What is not carried out is a fault.
    expect("a vector", with(&[0x0f, 0x10, 0x02], 0, 0, IOAPIC), Outcome::Raised(6)); // movups, without CR4.OSFXSR
    expect("x87", with(&[0xdd, 0x02], 0, 0, IOAPIC), PROTECTION); // fld qword [rdx]
    // The local APIC's version, as a device, by bytes and beside its registers.
    expect(
        "the APIC's version",
        with(READ, 0, 0, APIC + 0x30),
        Outcome::Done(0x5_0014, APIC + 0x30),
    );
    for offset in (0..0x1000).step_by(4) {
        let _ = with(READ, 0, 0, APIC + offset);
        let _ = with(READ, 0, 0, IOAPIC + offset);
    }
    say!("addresses were tried");
}

/// Non-maskable interrupts that it sends itself: one, which sends another.
fn interrupts() {
    let place = APIC + 0x300;
    expect("to send an NMI", with(WRITE, 0x4400, 0, place), Outcome::Done(0x4400, place));
    // It comes out behind the handler, and takes the other.
    let _ = with(&[0x53, 0x0f, 0xa2, 0x5b], 0, 0, 0); // push rbx; cpuid; pop rbx
    let came = non_maskable();
    if came != (2, 0) {
        say!("FAILED: NMIs: {} came, {} of them in the handler of another", came.0, came.1);
    }
    say!("NMIs were tried");
}

/// How many ticks of the counter it takes, on average, to come out and go on. Under QEMU's `-icount shift=0` these are
/// instructions, as the first line shows, which is of a known number of them.
fn measures() {
    const LOOP: &[u8] = &[0xff, 0xc9, 0x75, 0xfc]; // dec ecx; jnz
    const TIMES: u64 = 1000;
    let ticks = |code: &[u8], count: u64, rdx: u64| {
        // SAFETY: every CPU of 64 bits has it.
        let began = unsafe { core::arch::x86_64::_rdtsc() };
        let _ = with(code, 1, count, rdx);
        // SAFETY: as above.
        unsafe { core::arch::x86_64::_rdtsc() - began }
    };
    say!("measured: 1000000 instructions {}", ticks(LOOP, 500_000, 0));
    let empty = ticks(LOOP, TIMES, 0);
    for (name, code, rdx) in [
        // push rbx; push rcx; cpuid; pop rcx; pop rbx; dec ecx; jnz
        ("CPUID", &[0x53, 0x51, 0x31, 0xc0, 0x0f, 0xa2, 0x59, 0x5b, 0xff, 0xc9, 0x75, 0xf4][..], 0),
        // out dx, al; dec ecx; jnz, at the port that nothing has; and at the UART's scratch register
        ("a port that is not there", &[0xee, 0xff, 0xc9, 0x75, 0xfb], 0x80),
        ("a port of a device", &[0xee, 0xff, 0xc9, 0x75, 0xfb], 0x3ff),
        // mov eax, [rdx]; dec ecx; jnz
        ("a device in memory", &[0x8b, 0x02, 0xff, 0xc9, 0x75, 0xfa], IOAPIC),
        // mov [rdx], eax; dec ecx; jnz: the end of an interrupt
        ("its APIC in memory", &[0x89, 0x02, 0xff, 0xc9, 0x75, 0xfa], APIC + 0xb0),
    ] {
        let each = ticks(code, TIMES, rdx).saturating_sub(empty) / TIMES;
        say!("measured: {name} {each}");
    }
}

/// All ports.
fn ports() {
    let is_device =
        |port: u16| UART.contains(&port) || POWER.contains(&port) || port / 2 == 0x70 / 2;
    for port in 0..=u16::MAX {
        if !is_device(port) {
            expect(
                "a port where nothing is",
                with(&[0xec], 0, 0, port.into()),
                Outcome::Done(0xff, port.into()),
            ); // in al, dx
        }
    }
    expect("a string of ports", with(&[0x6e], 0, 0, 0x80), PROTECTION); // outsb
    expect("four bytes", with(&[0xed], 0, 0, 0xcfc), Outcome::Done(0xffff_ffff, 0xcfc)); // in eax, dx
    expect(
        "two bytes",
        with(&[0x66, 0xed], 0xaaaa_0000, 0, 0xcfc),
        Outcome::Done(0xaaaa_ffff, 0xcfc),
    ); // in ax, dx
    say!("ports were tried");
}

/// Anything, of what does not end this program.
fn at_random(seed: u64, rounds: u64) {
    let mut state = seed.max(1);
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..rounds {
        let (what, value, place) = (random() % 6, random(), random());
        match what {
            0 => _ = with(RDMSR, 0, place, 0),
            // Not those of VMLOAD and VMSAVE, and not where the kernel's own registers are; nor APIC_BASE and EFER.
            1 => {
                let msr = [0x10, 0x277, 0x6e0, 0x4b56_4d00, 0xc000_0103, place & 0x3fff]
                    [place as usize % 6];
                if !matches!(msr, 0x1b | 0x174..=0x176 | 0x800..=0x8ff) {
                    let _ = with(WRMSR, value & 0xffff_ffff, msr, value >> 32);
                }
            }
            2 => {
                let port = place as u16;
                if !POWER.contains(&port)
                    && !POWER.contains(&(port.wrapping_add(3)))
                    && !UART.contains(&port)
                {
                    let code: &[u8] =
                        [&[0xec][..], &[0xed], &[0x66, 0xed], &[0xee], &[0xef], &[0x66, 0xef]]
                            [value as usize % 6];
                    let _ = with(code, random(), 0, port.into());
                }
            }
            3 | 4 => {
                let base = [IOAPIC, APIC, NOWHERE, 0xff00_0000][place as usize % 4];
                let code: &[u8] = [
                    READ,
                    WRITE,
                    &[0x8a, 0x02],
                    &[0x88, 0x02],
                    &[0x48, 0x8b, 0x02],
                    &[0x48, 0x89, 0x02],
                    &[0x87, 0x02],
                    &[0x21, 0x02],
                    &[0x66, 0x89, 0x02],
                ][value as usize % 9];
                // The APIC is not told to begin anew, or to interrupt.
                let offset = random() & 0xfff;
                let is_left_alone = base == APIC && matches!(offset >> 4, 0x2f..=0x38);
                if !is_left_alone {
                    let _ = with(code, random() & 0xff, 0, base + offset);
                }
            }
            _ => _ = with(&[0x53, 0x0f, 0xa2, 0x5b], place, value, 0),
        }
    }
    say!("{rounds} rounds were tried at random");
}
