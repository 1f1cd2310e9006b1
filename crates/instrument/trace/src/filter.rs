//! The seccomp filter, as a program for the kernel: the calls that are recorded stop for the tracer, and all others
//! go on at once. It selects the same calls as [`wanted`](crate::calls::wanted).

use libc::sock_filter;

use crate::calls::{
    ARCHITECTURES, Architecture, KVM_RUN, KVM_TYPE, LONG, LONG_FILE, RUN_AREA, Test,
};

/// Offsets in `struct seccomp_data` (linux/seccomp.h), on a little-endian machine.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const HAS_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const ALWAYS: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const STOP: sock_filter = plain(RETURN, libc::SECCOMP_RET_TRACE);
const GO_ON: sock_filter = plain(RETURN, libc::SECCOMP_RET_ALLOW);

const fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Goes on `yes` instructions further if it holds, else `no`.
const fn test(code: u16, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code, jt: yes, jf: no, k }
}

const fn low(argument: u8) -> sock_filter {
    plain(LOAD, ARGUMENTS + 8 * argument as u32)
}

const fn high(argument: u8) -> sock_filter {
    plain(LOAD, ARGUMENTS + 8 * argument as u32 + 4)
}

/// The whole program.
pub(crate) fn program() -> Vec<sock_filter> {
    let mut program = vec![plain(LOAD, ARCH)];
    for architecture in &ARCHITECTURES {
        let part = of_architecture(architecture);
        program.push(test(EQUAL, architecture.audit, 1, 0));
        program.push(plain(ALWAYS, part.len() as u32));
        program.extend(part);
    }
    // No other has calls that are known here.
    program.push(GO_ON);
    program
}

fn of_architecture(architecture: &Architecture) -> Vec<sock_filter> {
    let mut part = vec![plain(LOAD, NUMBER)];
    for (number, _, which) in architecture.calls {
        let tested = tested(*which);
        part.push(test(EQUAL, *number, 0, tested.len() as u8));
        part.extend(tested);
    }
    part.push(GO_ON);
    part
}

/// Each ends by returning, whatever it finds.
fn tested(which: Test) -> Vec<sock_filter> {
    let long = LONG as u32;
    match which {
        Test::Always => vec![STOP],
        Test::Kvm => vec![
            low(1),
            test(EQUAL, KVM_RUN as u32, 4, 0),
            plain(SHIFT_RIGHT, 8),
            plain(AND, 0xFF),
            test(EQUAL, KVM_TYPE as u32, 0, 1),
            STOP,
            GO_ON,
        ],
        Test::Writes(flags) => {
            vec![low(flags), test(HAS_BIT, libc::O_ACCMODE as u32, 0, 1), STOP, GO_ON]
        }
        Test::Long(argument) => vec![
            high(argument),
            test(EQUAL, 0, 0, 2),
            low(argument),
            test(AT_LEAST, long, 0, 1),
            STOP,
            GO_ON,
        ],
        Test::LongOrShared => {
            let at_least = |least: u64, after: u8| {
                [
                    high(1),
                    test(EQUAL, 0, 0, after + 2),
                    low(1),
                    test(AT_LEAST, least as u32, after, after + 1),
                ]
            };
            let mut tested = vec![
                low(3),
                test(HAS_BIT, libc::MAP_SHARED as u32, 9, 0),
                test(HAS_BIT, libc::MAP_ANONYMOUS as u32, 4, 0),
            ];
            tested.extend(at_least(LONG_FILE, 4));
            tested.extend(at_least(LONG, 0));
            tested.extend([STOP, GO_ON]);
            tested
        }
        Test::LongOrRun => vec![
            high(1),
            test(EQUAL, 0, 0, 3),
            low(1),
            test(EQUAL, RUN_AREA as u32, 1, 0),
            test(AT_LEAST, long, 0, 1),
            STOP,
            GO_ON,
        ],
        Test::Duplicates => vec![
            low(1),
            test(EQUAL, libc::F_DUPFD as u32, 1, 0),
            test(EQUAL, libc::F_DUPFD_CLOEXEC as u32, 0, 1),
            STOP,
            GO_ON,
        ],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calls::wanted;

    /// What the kernel's interpreter makes of the instructions that are used here.
    fn interpret(program: &[sock_filter], arch: u32, number: u32, arguments: &[u64; 6]) -> u32 {
        let load = |offset: u32| match offset {
            NUMBER => number,
            ARCH => arch,
            _ => {
                let at = offset - ARGUMENTS;
                let argument = arguments[at as usize / 8];
                if at.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
        };
        let (mut at, mut value) = (0, 0u32);
        loop {
            let one = program[at];
            at += 1;
            let holds = match one.code {
                LOAD => {
                    value = load(one.k);
                    continue;
                }
                SHIFT_RIGHT => {
                    value >>= one.k;
                    continue;
                }
                AND => {
                    value &= one.k;
                    continue;
                }
                ALWAYS => {
                    at += one.k as usize;
                    continue;
                }
                RETURN => return one.k,
                EQUAL => value == one.k,
                AT_LEAST => value >= one.k,
                HAS_BIT => value & one.k != 0,
                other => panic!("{other:#x}"),
            };
            at += usize::from(if holds { one.jt } else { one.jf });
        }
    }

    fn argument() -> impl Strategy<Value = u64> {
        let near = [
            0,
            1,
            2,
            3,
            1030,
            LONG,
            LONG_FILE,
            0x22,
            RUN_AREA,
            KVM_RUN,
            0xAE01,
            0x4020_AE46,
            0xAF01,
            1 << 32,
        ];
        prop_oneof![
            any::<u64>(),
            (prop::sample::select(near.to_vec()), -1i64..=1)
                .prop_map(|(one, by)| one.wrapping_add_signed(by)),
            prop::sample::select(near.to_vec()).prop_map(|one| one | 1 << 40),
        ]
    }

    fn known() -> impl Strategy<Value = (u32, u32)> {
        let known: Vec<(u32, u32)> = ARCHITECTURES
            .iter()
            .flat_map(|one| one.calls.iter().map(|(number, ..)| (one.audit, *number)))
            .collect();
        prop_oneof![
            4 => prop::sample::select(known),
            1 => (prop::sample::select(ARCHITECTURES.map(|one| one.audit).to_vec()), 0u32..500),
            1 => any::<(u32, u32)>(),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn the_program_stops_at_what_is_wanted_and_at_nothing_else(
            (arch, number) in known(),
            arguments in prop::array::uniform6(argument()),
        ) {
            let says = interpret(&program(), arch, number, &arguments);
            let stops = wanted(arch, u64::from(number), &arguments).is_some();
            prop_assert_eq!(says, if stops { libc::SECCOMP_RET_TRACE } else { libc::SECCOMP_RET_ALLOW });
        }
    }

    #[test]
    fn the_program_is_one_that_the_kernel_takes() {
        // linux/filter.h: at most BPF_MAXINSNS; and jumps forward alone, to an instruction that there is.
        let program = program();
        assert!(program.len() <= 4096);
        for (at, one) in program.iter().enumerate() {
            let furthest = match one.code {
                ALWAYS => one.k as usize,
                EQUAL | AT_LEAST | HAS_BIT => usize::from(one.jt.max(one.jf)),
                _ => 0,
            };
            assert!(at + 1 + furthest < program.len() || one.code == RETURN, "{at}");
        }
    }
}
