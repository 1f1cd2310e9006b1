//! The merger's settings: what they were, what a run makes of them, and putting back what is still the run's.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// What may be set, in the order in which it is put back: the merger stops first, and its advisor, under which nobody
/// may set how much is scanned, comes last. The last two need not be there: kernels before v6.7 and v6.8 do not know
/// them.
const NAMES: [&str; 6] =
    ["run", "sleep_millisecs", "pages_to_scan", "use_zero_pages", "smart_scan", "advisor_mode"];

const MAY_BE_MISSING: [&str; 2] = ["smart_scan", "advisor_mode"];

/// A setting that a run changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) before: String,
    pub(super) ours: String,
}

impl Setting {
    /// The setting of this name, if it is one of the merger's.
    pub(super) fn named(name: &str, before: &str, ours: &str) -> Option<Self> {
        let name = NAMES.into_iter().find(|known| *known == name)?;
        Some(Self { name, before: before.to_owned(), ours: ours.to_owned() })
    }

    /// Puts it back, if it still is what the run made it: another process may have set it anew since.
    fn put_back(&self, directory: &Path) -> io::Result<bool> {
        let file = directory.join(self.name);
        let is_ours = selected(&fs::read_to_string(&file)?) == self.ours;
        let is_changed = is_ours && self.ours != self.before;
        if is_changed {
            write(&file, &self.before)?;
        }
        Ok(is_changed)
    }
}

/// What the settings are that `ours` names, in the order in which they are put back.
pub(super) fn read(directory: &Path, ours: &[(&str, &str)]) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    for name in NAMES {
        let Some((_, ours)) = ours.iter().find(|(other, _)| *other == name) else { continue };
        let file = directory.join(name);
        match fs::read_to_string(&file) {
            Ok(text) => settings.extend(Setting::named(name, selected(&text), ours)),
            Err(_) if MAY_BE_MISSING.contains(&name) => {}
            Err(error) => return Err(format!("{}: {error}", file.display())),
        }
    }
    Ok(settings)
}

/// Makes them the run's. The merger starts last.
pub(super) fn make_ours(
    directory: &Path,
    settings: &[Setting],
) -> Result<(), (&'static str, io::Error)> {
    for Setting { name, ours, .. } in settings.iter().rev() {
        write(&directory.join(name), ours).map_err(|error| (*name, error))?;
    }
    Ok(())
}

/// Puts them back, as far as they are still the run's; how many were.
pub(super) fn put_back(directory: &Path, settings: &[Setting]) -> usize {
    // One that cannot be put back, because it is not there any more, keeps none of the others.
    settings.iter().filter(|setting| setting.put_back(directory).unwrap_or(false)).count()
}

/// Writes a value to a file, if it is there. It is not opened as one that may be made: sysfs, where no file can be,
/// answers that with EACCES and not with ENOENT.
pub(super) fn write(file: &Path, value: &str) -> io::Result<()> {
    match OpenOptions::new().write(true).truncate(true).open(file) {
        Ok(mut file) => file.write_all(value.as_bytes()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The value in force: that in brackets, where the file lists all there are.
fn selected(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_an_older_kernel_lacks_is_passed_over_in_a_file_system_where_no_file_can_be_made()
     {
        let nowhere = Path::new("/sys/kernel/mm/mayfly_knows_of_no_such_setting");
        write(nowhere, "1").unwrap();
        assert!(!nowhere.exists());
        assert!(write(Path::new("/sys/kernel/mm"), "1").is_err());
    }

    #[test]
    fn the_value_in_force_is_that_in_brackets_or_the_only_one() {
        assert_eq!(selected("none [scan-time]\n"), "scan-time");
        assert_eq!(selected("[none] scan-time\n"), "none");
        assert_eq!(selected("100\n"), "100");
    }
}
