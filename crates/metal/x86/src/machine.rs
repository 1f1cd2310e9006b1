//! The machine that a guest finds: what its processor has, where its devices are, and the tables that say so.

pub mod acpi;
pub mod clock;
pub mod cpuid;
pub mod cr4;
pub mod layout;
pub mod msr;
pub mod xsave;
