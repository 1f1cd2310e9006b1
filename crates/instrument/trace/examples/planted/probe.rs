//! A probe of the program's own (USDT), as `<sys/sdt.h>` writes it: a `nop`, and a note that says where it is.

use std::arch::asm;
use std::sync::atomic::{AtomicU16, Ordering};

/// How many listen, as the kernel counts them.
#[used]
#[unsafe(link_section = ".probes")]
static COUNTER: AtomicU16 = AtomicU16::new(0);

/// Passes the probe `planted:asked`; says how many listened before it, for who listens may go as soon as it was passed.
#[inline(never)]
pub(crate) fn asked() -> u16 {
    let listened = COUNTER.load(Ordering::Relaxed);
    // SAFETY: does nothing; the note is in a section that is not loaded.
    unsafe {
        asm!(
            "990: nop",
            ".pushsection .note.stapsdt, \"\", \"note\"",
            ".balign 4",
            ".4byte 992f-991f, 994f-993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b, 0, {counter}",
            ".asciz \"planted\"",
            ".asciz \"asked\"",
            ".asciz \"\"",
            "994: .balign 4",
            ".popsection",
            counter = sym COUNTER,
        );
    }
    listened
}
