//! A probe of the program's own (USDT), as `<sys/sdt.h>` writes it: a `nop`, and a note that says where it is.

use std::arch::asm;
use std::sync::atomic::{AtomicU16, Ordering};

/// How many listen, as the kernel counts them.
#[used]
#[unsafe(link_section = ".probes")]
static COUNTER: Counter = Counter(AtomicU16::new(0));

/// In a page of the file of its own. Linkers that have a segment for what is read only after relocation let its last page in
/// the file be the first of the data. Both are mapped from there, and the kernel counts in the one that it comes to first.
#[repr(align(4096))]
struct Counter(AtomicU16);

/// Passes the probe `planted:asked`; says how many listened before it, for who listens may go as soon as it was passed.
#[inline(never)]
pub(crate) fn asked() -> u16 {
    let listened = COUNTER.0.load(Ordering::Relaxed);
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
