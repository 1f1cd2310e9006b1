//! The episodes.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_guests::wild::devices;
use mayfly_guests::wild::random::Random;
use x86_64::instructions::port::Port;

use super::apic::{self, APIC, IOAPIC};
use super::code::{BYTES, Code};
use super::kinds::{self, ALL, Kind};
use super::machine::{self, Shared, VCPUS, execute};
use super::{low, tables::Tables};
use crate::kernel::console::say;
use crate::kernel::entry::{arguments, number};

/// Where the registers of virtio devices begin, and how many bytes there are of them.
const VIRTIO: u64 = 0xfeb0_0000;
const VIRTIO_BYTES: u64 = 0xa00;
/// Memory that nothing of its own lies in: scripts/metal-x86 gives this VM 64 MiB.
const FREE: u64 = 0x200_0000;
const FREE_BYTES: u64 = 24 << 20;
const MEMORY_END: u64 = 64 << 20;
/// Episodes of the first vCPU between two lines, and behind which it ends this life: the next begins with nothing of what it has done.
const TOLD: u64 = 64;
const LIFE: u64 = 128;
/// Episodes between two times that the APIC is as a kernel has it, and that the second vCPU wakes the first.
const SET_UP: u64 = 16;
const WAKES: u64 = 64;

/// What a vCPU has of its own, beside its code.
#[repr(C, align(4096))]
struct Own {
    random: Random,
    episodes: u64,
    tables: Tables,
}

static OWN: Shared<[Own; VCPUS]> = Shared(UnsafeCell::new(
    [const { Own { random: Random::new(0), episodes: 0, tables: Tables::new() } }; VCPUS],
));

/// The code of each, in a page of its own: who writes to a page of code has QEMU translate it anew.
#[repr(C, align(4096))]
struct Page([u8; BYTES]);

static CODE: Shared<[Page; VCPUS]> = Shared(UnsafeCell::new([const { Page([0; BYTES]) }; VCPUS]));

/// Code that both execute and change.
static CHANGED: Shared<[u8; BYTES]> = Shared(UnsafeCell::new([0; BYTES]));

static SEED: AtomicU64 = AtomicU64::new(0);

/// From `start.S`, with the address of the command line.
#[unsafe(no_mangle)]
extern "C" fn begin(line: u64) -> ! {
    SEED.store(number(arguments(line), "seed=").unwrap_or(0), Ordering::Relaxed);
    machine::prepare();
    low::prepare();
    machine::settle(0)
}

/// From `machine.S`: an episode of the vCPU of that number is over, or it begins.
#[unsafe(no_mangle)]
extern "C" fn fuzz_again(number: usize) -> ! {
    // SAFETY: this vCPU's, which has dropped what it was at.
    let own = unsafe { &mut (&mut *OWN.0.get())[number] };
    if own.episodes == 0 {
        own.random = Random::new(SEED.load(Ordering::Relaxed) ^ drawn() << 8 ^ number as u64);
    }
    machine::take_task(number);
    episode(own, number);
    machine::settle(number)
}

/// What is another number in each life: the processor's own random number, which QEMU draws by its `-seed`, or the counter.
fn drawn() -> u64 {
    let (number, is_there): (u64, u8);
    if __cpuid(1).ecx >> 30 & 1 == 0 {
        // SAFETY: every CPU of 64 bits has it.
        return unsafe { _rdtsc() };
    }
    // SAFETY: the processor has the instruction.
    unsafe {
        asm!("rdrand {}", "setc {}", out(reg) number, out(reg_byte) is_there, options(nostack, nomem));
    }
    // SAFETY: every CPU of 64 bits has it.
    if is_there == 1 { number } else { unsafe { _rdtsc() } }
}

/// One episode: what ends it is an exception, an interrupt, or its own end.
fn episode(own: &mut Own, number: usize) {
    own.episodes += 1;
    let random = &mut own.random;
    if own.episodes % SET_UP == 1 {
        apic::set_up(random);
    }
    if number != 0 && own.episodes.is_multiple_of(WAKES) {
        apic::wake(random, low::LONG);
    }
    if number == 0 && own.episodes.is_multiple_of(TOLD) {
        kinds::tell();
    }
    apic::begin(random);
    let is_last = number == 0 && own.episodes.is_multiple_of(LIFE);
    let kind = if is_last {
        random.one_of(&[Kind::Reset, Kind::Reset, Kind::Triple])
    } else {
        draw(random)
    };
    // The first vCPU alone has the other begin.
    if number != 0 && matches!(kind, Kind::Real | Kind::Task) {
        return;
    }
    kinds::count(kind);
    let mut registers = [0; 16];
    registers.fill_with(|| address(random));
    // Strings are short.
    registers[1] &= 0xff;
    // SAFETY: this vCPU's, whose last episode is over.
    let Page(bytes) = unsafe { &mut (&mut *CODE.0.get())[number] };
    let start = bytes.as_ptr();
    let mut code = Code::new(bytes);
    match kind {
        Kind::Long => (0..=random.below(8)).for_each(|_| code.wild(random)),
        // Then it halts, so that the other has a processor until its timer interrupts.
        Kind::Real => {
            apic::start(low::random_code(random));
            code.put(&[0xf4]);
        }
        Kind::Task => {
            apic::start(low::tasks(random));
            code.put(&[0xf4]);
        }
        Kind::Tables => {
            registers[2] = own.tables.take(random, address);
            if random.once_in(8) {
                code.put(&[0xff, 0xe2]); // jmp rdx
            }
            code.transfer(random);
        }
        Kind::Msr => {
            registers[1] = msr(random);
            registers[0] = random.next() >> random.below(64);
            registers[2] = if random.once_in(2) { 0 } else { random.next() >> random.below(64) };
            code.put(random.one_of(&[&[0x0f, 0x32], &[0x0f, 0x30]]));
        }
        Kind::Port => {
            registers[2] = port(random);
            code.put(random.one_of(&PORTS));
        }
        Kind::Cpuid => {
            let range = random.one_of(&[0, 0x4000_0000, 0x8000_0000, 0xc000_0000]);
            registers[0] =
                if random.once_in(4) { random.next() } else { range + random.below(0x30) };
            code.put(&[0x0f, 0xa2]);
        }
        Kind::Apic => return apic::storm(random),
        Kind::Changed => {
            registers[2] = device(random);
            changes(random, &mut code, &mut registers);
        }
        Kind::Events => events(random, &mut code),
        Kind::Svm => return svm(random, code, &registers, start),
        Kind::Device => {
            registers[2] = device(random);
            (0..=random.below(3)).for_each(|_| code.transfer(random));
        }
        Kind::Virtio => {
            // SAFETY: memory that nothing of its own lies in.
            let news = unsafe { devices::drive(random, VIRTIO, FREE, FREE_BYTES) };
            if let Some((name, used)) = news {
                say!("chains that were used by the {name}: {used}");
            }
            return;
        }
        Kind::Reset => {
            kinds::tell();
            // SAFETY: this VM is reset.
            return unsafe { Port::<u8>::new(0x602).write(1) };
        }
        Kind::Triple => {
            kinds::tell();
            // lidt [rdx]; ud2, where nothing is but zeros
            registers[2] = registers.as_ptr() as u64;
            registers[0] = 0;
            registers[1] = 0;
            code.put(&[0x48, 0x89, 0x02, 0x48, 0x89, 0x42, 0x08, 0x0f, 0x01, 0x1a, 0x0f, 0x0b]);
        }
    }
    execute(&registers, start);
}

fn draw(random: &mut Random) -> Kind {
    let all = ALL.iter().map(|(_, often, _)| often).sum();
    let mut left = random.below(all);
    for (kind, often, _) in ALL {
        if left < often {
            return kind;
        }
        left -= often;
    }
    Kind::Long
}

/// An address that is worth a try: of devices, of memory, of nothing.
fn address(random: &mut Random) -> u64 {
    match random.below(8) {
        0 | 1 => device(random),
        2..=4 => FREE + random.below(FREE_BYTES),
        5 => random.next() >> random.below(64),
        6 => random.below(0x10_0000),
        _ => MEMORY_END - random.below(0x10),
    }
}

/// An address of a device, or where there is none.
fn device(random: &mut Random) -> u64 {
    let at = match random.below(8) {
        0 | 1 => APIC + random.below(0x400),
        2 | 3 => IOAPIC + random.below(0x50),
        4 | 5 => VIRTIO + random.below(VIRTIO_BYTES + 8),
        6 => random.one_of(&[0xd000_0000, 0xffff_fff0, MEMORY_END, VIRTIO + 0xffc, APIC + 0xffc]),
        _ => MEMORY_END - random.below(8),
    };
    if random.once_in(4) { at } else { at & !3 }
}

fn msr(random: &mut Random) -> u64 {
    const KNOWN: [u64; 24] = [
        0x10,
        0x1b,
        0x48,
        0x8b,
        0x174,
        0x175,
        0x176,
        0x1d9,
        0x277,
        0x2ff,
        0x6e0,
        0xda0,
        0x4b56_4d00,
        0x4b56_4d01,
        0xc000_0080,
        0xc000_0081,
        0xc000_0082,
        0xc000_0100,
        0xc000_0102,
        0xc000_0103,
        0xc001_0015,
        0xc001_0114,
        0xc001_0117,
        0xc001_1029,
    ];
    match random.below(6) {
        0 | 1 => random.one_of(&KNOWN),
        2 => 0x800 + random.below(0x100),
        3 => random.one_of(&[0, 0xc000_0000, 0xc001_0000]) + random.below(0x2000),
        _ => random.next() >> 32 >> random.below(32),
    }
}

/// IN and OUT of each size, by DX and by a number, and strings.
const PORTS: [&[u8]; 12] = [
    &[0xec],
    &[0xed],
    &[0x66, 0xed],
    &[0xee],
    &[0xef],
    &[0x66, 0xef],
    &[0xe4, 0x71],
    &[0xe6, 0x70],
    &[0xe5, 0x60],
    &[0x6c],
    &[0xf3, 0x6e],
    &[0xf3, 0x66, 0x6f],
];

/// Any, but hardly one of those of its power, and not that by which it prints.
fn port(random: &mut Random) -> u64 {
    let port = match random.below(4) {
        0 => 0x3f8 + random.below(8),
        1 => 0x70 + random.below(2),
        2 => 0x600 + random.below(4),
        _ => random.below(0x1_0000),
    };
    let is_power = (0x5fd..0x603).contains(&port) && !random.once_in(128);
    let prints = (0x3f5..0x3fa).contains(&port) || port == 0x3fb;
    if is_power || prints { 0x80 } else { port }
}

/// Code that changes what comes next in itself; or that both vCPUs have, and change while the other executes it.
fn changes(random: &mut Random, code: &mut Code<'_>, registers: &mut [u64; 16]) {
    // Mostly of one instruction that takes an address: the bytes of another.
    const BYTES_OF: [u8; 12] =
        [0x8b, 0x89, 0x8a, 0x88, 0x87, 0x21, 0x90, 0xc3, 0x0f, 0x66, 0xf0, 0x02];
    let byte = random.one_of(&BYTES_OF);
    if random.once_in(2) {
        // mov byte [rip], byte: of the instruction that follows
        code.put(&[0xc6, 0x05, random.below(3) as u8, 0, 0, 0, byte]);
        code.transfer(random);
        return;
    }
    let place = CHANGED.0.get().cast::<u8>();
    for _ in 0..4 {
        let (at, byte) = (random.below(8) as usize, random.one_of(&BYTES_OF));
        // SAFETY: bytes that are code of both vCPUs, and may be anything.
        unsafe { place.add(at).write_volatile(byte) };
    }
    for at in 8..16 {
        // SAFETY: as above.
        unsafe { place.add(at).write_volatile(0xc3) };
    }
    registers[8] = place as u64;
    // call r8; xor byte [r8 + 1], 2, again and again
    for _ in 0..8 {
        code.put(&[
            0x41,
            0xff,
            0xd0,
            0x41,
            0x80,
            0x70,
            random.below(8) as u8,
            1 << random.below(8),
        ]);
    }
}

/// Exceptions of all kinds, also with a stack that is nowhere, single steps, and breakpoints in front of exits.
fn events(random: &mut Random, code: &mut Code<'_>) {
    if random.once_in(3) {
        // pushfq; or dword [rsp], TF, or RF, or AC, or NT; popfq
        let flag = random.one_of(&[0x100_u32, 0x1_0000, 0x4_0100, 0x4000, 0x1_0100]).to_le_bytes();
        code.put(&[0x9c, 0x81, 0x0c, 0x24]);
        code.put(&flag);
        code.put(&[0x9d]);
    }
    if random.once_in(3) {
        // mov dr0, rdx; lea rax, [rip + n]; mov dr1, rax; mov eax, value; mov dr7, rax
        code.put(&[
            0x0f,
            0x23,
            0xc2,
            0x48,
            0x8d,
            0x05,
            random.below(24) as u8,
            0,
            0,
            0,
            0x0f,
            0x23,
            0xc8,
        ]);
        code.put(&[
            0xb8,
            random.next() as u8,
            0x07,
            random.next() as u8,
            random.next() as u8,
            0x0f,
            0x23,
            0xf8,
        ]);
    }
    if random.once_in(3) {
        code.put(random.one_of(&[&[0x48, 0x89, 0xd4], &[0x48, 0x31, 0xe4]])); // mov rsp, rdx; xor rsp, rsp
    }
    let by_number = [0xcd, random.next() as u8];
    let special: [&[u8]; 10] = [
        &by_number,
        &[0xcc],
        &[0xf1],
        &[0x0f, 0x0b],
        &[0x0f, 0xa2],
        &[0x8b, 0x02],
        &[0x50],
        &[0x0f, 0x01, 0xd9],
        &[0x48, 0xcf],
        &[0x31, 0xc9, 0xf7, 0xf1],
    ];
    for _ in 0..4 {
        code.put(random.one_of(&special));
    }
}

/// An instruction of SVM, which must be refused, also behind an attempt to turn it on.
fn svm(random: &mut Random, mut code: Code<'_>, registers: &[u64; 16], start: *const u8) {
    if random.once_in(2) {
        // mov ecx, EFER; rdmsr; or eax, SVME; wrmsr, which raises an exception
        code.put(&[0xb9, 0x80, 0, 0, 0xc0, 0x0f, 0x32, 0x0d, 0, 0x10, 0, 0, 0x0f, 0x30]);
    }
    let last = random.one_of(&[0xd8, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf]);
    code.put(&[0x0f, 0x01, last]);
    execute(registers, start);
    say!("WRONG: SVM's instruction 0f 01 {last:x} is not refused");
}
