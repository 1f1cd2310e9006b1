//! Where the guest begins, and what it is told and says.

use core::fmt::{self, Write};
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use super::course;

core::arch::global_asm!(
    include_str!("../header.S"),
    r#"
first:
    adrp x1, stacks_end
    mov sp, x1
    bl {main}
    "#,
    main = sym main,
);

const UART: usize = 0x0900_0000;
const SYSTEM_OFF: u64 = 0x8400_0008;

pub(super) struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| set(UART, byte.into()));
        Ok(())
    }
}

macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write;
        let mut console = $crate::machine::Console;
        let _ = console.write_fmt(format_args!($($text)*)).and_then(|()| console.write_str("\r\n"));
    }};
}
pub(super) use say;

/// Writes to the register at `address`.
pub(super) fn set(address: usize, value: u32) {
    // SAFETY: a register of a device that every guest has, or of this guest's disk.
    unsafe { with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

/// Reads the register at `address`.
pub(super) fn get(address: usize) -> u32 {
    // SAFETY: as above.
    unsafe { with_exposed_provenance::<u32>(address).read_volatile() }
}

/// Powers off.
pub(super) fn end() -> ! {
    // SAFETY: a call of PSCI, which does not return.
    unsafe {
        core::arch::asm!("hvc #0", "b .", in("x0") SYSTEM_OFF, options(noreturn));
    }
}

/// The numbers that the guest is given: the tree is searched for them as for any text.
fn told(tree: &[u8]) -> Option<(u64, u64)> {
    const WORD: &[u8] = b"guest=keeps:";
    let at = tree.windows(WORD.len()).position(|window| window == WORD)? + WORD.len();
    let mut numbers = tree[at..].split(|byte| !byte.is_ascii_digit()).map(|digits| {
        digits.iter().fold(0, |number: u64, &digit| {
            number.wrapping_mul(10).wrapping_add((digit - b'0').into())
        })
    });
    Some((numbers.next()?, numbers.next()?))
}

extern "C" fn main(tree: usize) -> ! {
    // SAFETY: a device tree is where the boot protocol says, and its second word is how long it is.
    let tree = unsafe {
        let bytes = with_exposed_provenance::<u32>(tree + 4).read();
        core::slice::from_raw_parts(with_exposed_provenance(tree), u32::from_be(bytes) as usize)
    };
    if let Some((said, life)) = told(tree) {
        course::run(said, life);
    } else {
        say!("guest: FAILED: it is not told what it has flushed");
    }
    end()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("guest: FAILED: {info}");
    end()
}
