//! Whether a host is affected, and what to do about it: of all experiments, before anything else.

use std::fmt;

use mayfly_record::Description;

use crate::text::Style;

/// Writes what is said of each experiment of which something is.
pub(crate) fn write<'a>(
    f: &mut fmt::Formatter<'_>,
    experiments: impl Iterator<Item = &'a Description>,
    style: Style,
) -> fmt::Result {
    let mut begins = true;
    for known in experiments {
        let Some((first, rest)) = known.verdict.split_first() else { continue };
        if std::mem::take(&mut begins) {
            writeln!(f)?;
        }
        let first = style.item(&format!("{}: {first}", known.name));
        writeln!(f, "{}", first.replacen(&known.name, &style.strong(&known.name), 1))?;
        for line in rest {
            writeln!(f, "{}", style.filled(line, "  ", "  "))?;
        }
    }
    Ok(())
}
