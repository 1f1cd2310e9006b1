//! How an event's content is laid out, as its `format` says: that differs between kernels.

use std::collections::BTreeMap;

/// Where a field is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    at: usize,
    size: usize,
    signed: bool,
}

impl Field {
    /// Its number.
    pub(super) fn of(self, content: &[u8]) -> Option<u64> {
        let bytes = content.get(self.at..self.at.checked_add(self.size)?)?;
        Some(match (self.size, self.signed) {
            (1, _) => u64::from(bytes[0]),
            (2, _) => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            (4, false) => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            (4, true) => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)) as u64,
            (8, _) => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// Its text, which stands elsewhere: the field says where, and how long it is (`__data_loc`).
    pub(super) fn text(self, content: &[u8]) -> Option<String> {
        let place = self.of(content)?;
        let (at, length) = ((place & 0xFFFF) as usize, (place >> 16 & 0xFFFF) as usize);
        let bytes = content.get(at..at.checked_add(length)?)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// An event's number and its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) id: u16,
    pub(super) fields: BTreeMap<String, Field>,
}

impl Format {
    /// Reads `events/SYSTEM/NAME/format`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(field).collect();
        Some(Self { id, fields })
    }

    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }

    /// The arguments of a system call, in their order: what stands behind its number, a long each.
    pub(super) fn arguments(&self) -> Vec<Field> {
        let Some(number) = self.field("__syscall_nr") else { return Vec::new() };
        let mut all: Vec<Field> = self.fields.values().copied().collect();
        all.retain(|one| one.at > number.at && one.size == size_of::<u64>());
        all.sort_unstable_by_key(|one| one.at);
        all.truncate(6);
        all
    }
}

/// `field:TYPE NAME; offset:N; size:N; signed:N;`
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?;
    let name = declared.rsplit([' ', '*']).next()?.split('[').next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let field =
        Field { at: number("offset:")?, size: number("size:")?, signed: number("signed:")? == 1 };
    Some((name.to_owned(), field))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "\
name: sys_enter_openat
ID: 669
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;
\tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] __filename_val;\toffset:32;\tsize:4;\tsigned:0;

print fmt: \"dfd: 0x%08lx\", ((unsigned long)(REC->dfd))
";

    #[test]
    fn fields_are_where_the_kernel_says() {
        let format = Format::parse(OPEN).unwrap();
        assert_eq!(format.id, 669);
        assert_eq!(format.field("common_pid"), Some(Field { at: 4, size: 4, signed: true }));
        let mut content = vec![0; 36];
        content[4..8].copy_from_slice(&(-3i32).to_ne_bytes());
        content[24..32].copy_from_slice(&77u64.to_ne_bytes());
        content[32..36].copy_from_slice(&(4u32 << 16 | 0x24).to_ne_bytes());
        content.extend(b"/a\0b");
        assert_eq!(format.field("common_pid").unwrap().of(&content), Some(-3i64 as u64));
        let arguments: Vec<_> = format.arguments().iter().map(|one| one.of(&content)).collect();
        assert_eq!(arguments, [Some(0), Some(77)]);
        assert_eq!(format.field("__filename_val").unwrap().text(&content).unwrap(), "/a");
        content.truncate(30);
        assert_eq!(format.field("filename").unwrap().of(&content), None);
        assert_eq!(format.field("__filename_val").unwrap().text(&content), None);
    }

    #[test]
    fn what_is_no_format_is_none() {
        assert_eq!(Format::parse(""), None);
        assert_eq!(Format::parse("ID: many"), None);
        let empty = Format::parse("ID: 7\n\tfield:nonsense\n\tfield:int a;\tsize:4;").unwrap();
        assert!(empty.fields.is_empty() && empty.arguments().is_empty());
    }
}
