//! The way in, and the command line with which a kernel begins.

core::arch::global_asm!(include_str!("start.S"), options(att_syntax));

/// What stands there.
pub(crate) fn arguments(line: u64) -> &'static str {
    // SAFETY: the boot protocol's, which ends with a zero.
    let text =
        unsafe { core::ffi::CStr::from_ptr(core::ptr::with_exposed_provenance(line as usize)) };
    text.to_str().unwrap_or_default()
}

/// The number that stands behind `name` in it.
pub(crate) fn number(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok())
}
