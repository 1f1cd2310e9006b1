//! Which descriptors of which process stand for something of KVM's.
//!
//! A table is learned in two ways. What a call makes is known by its result; and where a descriptor is used that nobody was
//! seen to make (it came through a socket, or from another process), `/proc` says what it is, and the kernel, whether it is
//! the same open file as one that is known. So nothing is missed by what was not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::record::Object;
use crate::sys::ptrace::{Shared, share};

/// All tables. Threads of a process share one; so do processes that were made to.
#[derive(Default)]
pub(super) struct Descriptors {
    tables: Vec<BTreeMap<i32, Object>>,
    vms: usize,
}

/// `KVM_SET_DEVICE_ATTR` and its kin, by number (linux/kvm.h).
const DEVICE_REQUESTS: std::ops::RangeInclusive<u64> = 0xE1..=0xE3;

/// Whether `/proc` says that a descriptor is of KVM's.
pub(super) fn is_of_kvm(pid: i32, fd: i32) -> bool {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    link == Path::new("/dev/kvm") || link.to_string_lossy().starts_with("anon_inode:kvm-")
}

/// A table's number.
pub(super) type Table = usize;

impl Descriptors {
    /// A table with nothing in it.
    pub(super) fn empty(&mut self) -> Table {
        self.tables.push(BTreeMap::new());
        self.tables.len() - 1
    }

    /// A table with what another has, as a fork makes it.
    pub(super) fn copied(&mut self, from: Table) -> Table {
        self.tables.push(self.tables[from].clone());
        self.tables.len() - 1
    }

    /// A number for a VM that is new.
    pub(super) fn new_vm(&mut self) -> usize {
        self.vms += 1;
        self.vms - 1
    }

    pub(super) fn known(&self, table: Table, fd: i32) -> Option<&Object> {
        self.tables[table].get(&fd)
    }

    pub(super) fn set(&mut self, table: Table, fd: i32, object: Object) {
        self.tables[table].insert(fd, object);
    }

    pub(super) fn forget(&mut self, table: Table, fd: i32) {
        self.tables[table].remove(&fd);
    }

    /// Those from `first` to `last`, both included.
    pub(super) fn within(&self, table: Table, first: i32, last: i32) -> Vec<i32> {
        if first > last {
            return Vec::new();
        }
        self.tables[table].range(first..=last).map(|(fd, _)| *fd).collect()
    }

    /// The VMs that there are descriptors of.
    pub(super) fn vms(&self, table: Table) -> Vec<usize> {
        let vms: BTreeSet<usize> = self.tables[table].values().filter_map(Object::vm).collect();
        vms.into_iter().collect()
    }

    /// What a descriptor stands for on which an ioctl of KVM's is called, this one. `processes` are a thread and a table
    /// each.
    pub(super) fn used(
        &mut self,
        tid: i32,
        table: Table,
        fd: i32,
        request: u64,
        processes: &[(i32, Table)],
    ) -> Object {
        if let Some(known) = self.known(table, fd) {
            return known.clone();
        }
        let same = processes.iter().find_map(|(other, theirs)| {
            let mut open = self.tables[*theirs].iter();
            open.find(|(other_fd, _)| {
                share(tid, *other, Shared::File(fd, **other_fd)) == Some(true)
            })
            .map(|(_, object)| object.clone())
        });
        let object = same.unwrap_or_else(|| self.told(tid, fd, request));
        self.set(table, fd, object.clone());
        object
    }

    /// What `/proc` says of a descriptor; where it says nothing any more, what only a device is asked for is one.
    fn told(&mut self, tid: i32, fd: i32, request: u64) -> Object {
        let link = fs::read_link(format!("/proc/{tid}/fd/{fd}")).unwrap_or_default();
        if link.as_os_str().is_empty() && DEVICE_REQUESTS.contains(&(request & 0xFF)) {
            return Object::Device { vm: self.vms.saturating_sub(1) };
        }
        let link = link.to_string_lossy();
        match link.strip_prefix("anon_inode:") {
            Some("kvm-vm") => Object::Vm { vm: self.new_vm() },
            Some(name) => {
                // Whose it is cannot be told; mostly there is one VM.
                let vm = self.vms.saturating_sub(1);
                match name.strip_prefix("kvm-vcpu:").map(str::parse) {
                    Some(Ok(id)) => Object::Vcpu { vm, id },
                    _ => Object::Device { vm },
                }
            }
            None => Object::Kvm,
        }
    }

    /// Forgets what is not there any more: a process has executed another program.
    pub(super) fn look_again(&mut self, tid: i32, table: Table) {
        self.tables[table].retain(|fd, object| {
            let link = fs::read_link(format!("/proc/{tid}/fd/{fd}")).unwrap_or_default();
            let link = link.to_string_lossy();
            match object {
                Object::Kvm => link.starts_with('/'),
                _ => link.starts_with("anon_inode:kvm-"),
            }
        });
    }

    /// Forgets a table: its process is gone.
    pub(super) fn clear(&mut self, table: Table) {
        self.tables[table].clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_has_what_there_was_and_then_goes_its_own_way() {
        let mut all = Descriptors::default();
        let one = all.empty();
        all.set(one, 3, Object::Kvm);
        let vm = Object::Vm { vm: all.new_vm() };
        all.set(one, 4, vm.clone());
        let other = all.copied(one);
        all.forget(one, 4);
        assert_eq!((all.known(one, 4), all.known(other, 4)), (None, Some(&vm)));
        assert_eq!(all.within(other, 4, i32::MAX), [4]);
        assert!(all.within(other, 9, 3).is_empty());
        assert_eq!((all.vms(one), all.vms(other)), (vec![], vec![0]));
        all.clear(other);
        assert_eq!(all.known(other, 4), None);
    }

    #[test]
    fn a_descriptor_that_is_none_of_kvms_is_taken_for_the_device() {
        // Its driver has the calls of KVM's type, whatever its name is.
        let mut all = Descriptors::default();
        let table = all.empty();
        assert_eq!(all.used(std::process::id().cast_signed(), table, 0, 0, &[]), Object::Kvm);
    }
}
