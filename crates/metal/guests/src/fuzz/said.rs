//! What the guest says on its console.

use core::ptr::with_exposed_provenance_mut;

use mayfly_arm64_registers::sysreg::SysReg;

pub(crate) const UART: u64 = 0x0900_0000;

/// What an access has come to: a value, or an exception with that syndrome.
pub(crate) type Answer = Result<u64, u64>;

/// Writes to a register of a device.
pub(crate) fn write(address: u64, value: u32) {
    // SAFETY: a device's.
    unsafe { with_exposed_provenance_mut::<u32>(address as usize).write_volatile(value) };
}

pub(crate) fn say(text: &[u8]) {
    for byte in text {
        write(UART, u32::from(*byte));
    }
}

pub(crate) fn say_number(number: u64) {
    if number > 9 {
        say_number(number / 10);
    }
    say(&[b'0' + (number % 10) as u8]);
}

/// Prints what was wrong.
pub(crate) fn say_wrong(register: SysReg, answers: [Answer; 3]) {
    say(b"guest: WRONG: S");
    let numbers = [register.op0(), register.op1(), register.crn(), register.crm(), register.op2()];
    for number in numbers {
        say(b"_");
        say_number(number.into());
    }
    for (what, answer) in [&b" was read: "[..], b", written: ", b", read: "].iter().zip(answers) {
        say(what);
        if answer.is_err() {
            say(b"exception ");
        }
        let (Ok(number) | Err(number)) = answer;
        say_number(number);
    }
    say(b"\r\n");
}

/// Prints how many chains a device has used.
pub(crate) fn say_chains(device: &str, used: u64) {
    say(b"guest: chains that were used by the ");
    say(device.as_bytes());
    say(b": ");
    say_number(used);
    say(b"\r\n");
}
