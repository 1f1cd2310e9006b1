//! What tells this processor from others: its ID registers, and the sizes of lines and blocks of its caches.

use core::fmt;

/// The registers of this processor, as `name=value`, words.
#[derive(Clone, Copy, Debug)]
pub struct Identity([(&'static str, u64); 13]);

impl Identity {
    /// Reads them.
    pub fn read() -> Self {
        Self([
            ("midr_el1", read_register!("midr_el1")),
            ("ctr_el0", read_register!("ctr_el0")),
            ("dczid_el0", read_register!("dczid_el0")),
            ("clidr_el1", read_register!("clidr_el1")),
            ("id_aa64pfr0_el1", read_register!("s3_0_c0_c4_0")),
            ("id_aa64pfr1_el1", read_register!("s3_0_c0_c4_1")),
            ("id_aa64dfr0_el1", read_register!("id_aa64dfr0_el1")),
            ("id_aa64isar0_el1", read_register!("s3_0_c0_c6_0")),
            ("id_aa64isar1_el1", read_register!("s3_0_c0_c6_1")),
            ("id_aa64isar2_el1", read_register!("s3_0_c0_c6_2")),
            ("id_aa64mmfr0_el1", read_register!("s3_0_c0_c7_0")),
            ("id_aa64mmfr1_el1", read_register!("s3_0_c0_c7_1")),
            ("id_aa64mmfr2_el1", read_register!("s3_0_c0_c7_2")),
        ])
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            let between = if number == 0 { "" } else { " " };
            write!(f, "{between}{name}={value:#x}")?;
        }
        Ok(())
    }
}
