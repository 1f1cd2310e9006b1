//! Values that a user chooses by name.

/// The one of `all` whose name is `text`.
///
/// # Errors
///
/// None has it; the message names the accepted ones.
pub(super) fn by_name<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
) -> Result<T, String> {
    all.iter().copied().find(|&value| name(value) == text).ok_or_else(|| {
        let accepted: Vec<_> = all.iter().map(|&value| name(value)).collect();
        format!("accepted are {}", accepted.join(", "))
    })
}
