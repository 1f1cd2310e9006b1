//! A note of what is to be put back, for the next process that takes the merger, if all processes that know are killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::settings::Setting;

/// What a boot is known by: a note of another one is about settings that are gone.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file, which is root's as the settings are.
#[derive(Clone, Debug)]
pub(super) struct Note {
    path: PathBuf,
}

impl Note {
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it: whole, or not at all.
    pub(super) fn leave(&self, settings: &[Setting]) -> io::Result<()> {
        let line = |Setting { name, before, ours }: &Setting| format!("{name} {before} {ours}");
        let lines: Vec<String> =
            [boot_id()?].into_iter().chain(settings.iter().map(line)).collect();
        let unfinished = self.path.with_extension("new");
        let mut file = File::create(&unfinished)?;
        file.write_all(lines.join("\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &self.path)
    }

    /// What it says, if it is there and of this boot.
    pub(super) fn read(&self) -> Option<Vec<Setting>> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut lines = text.lines();
        if lines.next()? != boot_id().ok()? {
            return None;
        }
        let setting = |line: &str| {
            let [name, before, ours] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            Setting::named(name, before, ours)
        };
        Some(lines.filter_map(setting).collect())
    }

    /// Takes it away, if it is there.
    pub(super) fn remove(&self) {
        // One that stays says no more than what is put back already.
        let _ = fs::remove_file(&self.path);
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_left_in_the_same_boot_alone() {
        let path = std::env::temp_dir().join(format!("mayfly-note-{}", std::process::id()));
        let note = Note::at(&path);
        assert_eq!(note.read(), None);
        let settings: Vec<_> = [("run", "0", "1"), ("advisor_mode", "scan-time", "none")]
            .into_iter()
            .filter_map(|(name, before, ours)| Setting::named(name, before, ours))
            .collect();
        note.leave(&settings).unwrap();
        assert_eq!(note.read(), Some(settings));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen(|_: char| true, "x", 1)).unwrap();
        assert_eq!(note.read(), None);
        fs::write(&path, format!("{}\n../../evil 0 1\nrun 0\n", boot_id().unwrap())).unwrap();
        assert_eq!(note.read(), Some(Vec::new()));
        note.remove();
        assert!(!path.exists());
    }
}
