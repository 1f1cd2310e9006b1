//! The modules that are built for a bare arm64 alone.

/// Reads a system register by its name.
#[macro_export]
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reads a register that this processor has at EL2, which changes nothing.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack)) };
        value
    }};
}

/// Writes a system register by its name. The caller argues what that does to the program.
#[macro_export]
macro_rules! write_register {
    ($name:literal, $value:expr) => {
        core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) $value, options(nostack))
    };
}

/// Writes zero to a system register by its name.
#[macro_export]
macro_rules! clear_register {
    ($name:literal) => {
        core::arch::asm!(concat!("msr ", $name, ", xzr"), options(nostack))
    };
}

/// Writes a system register that this program's own memory has nothing to do with: such writes do not order loads and
/// stores, so that several may be taken from memory together.
macro_rules! write_register_alone {
    ($name:literal, $value:expr) => {
        core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) $value, options(nomem, nostack))
    };
}
pub(crate) use write_register_alone;

pub mod cache;
pub mod common;
pub mod confinement;
pub mod context;
pub mod copy;
mod counting;
pub mod cpu;
mod error;
pub mod gic;
pub mod guest;
pub mod identity;
mod lookup;
pub mod machine;
mod optional;
pub mod pmu;
pub mod resumed;
pub mod spin;
pub mod switch;
pub mod timer;
pub mod tlb;
mod traps;
pub mod virtual_gic;
pub mod zero;
