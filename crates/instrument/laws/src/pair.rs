//! What is measured against what.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A call of a VM's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// `KVM_CREATE_VM`.
    CreateVm,
    /// `close` of the last descriptors of a VM: its vCPUs', then its own.
    CloseVm,
    /// `KVM_CREATE_VCPU`.
    CreateVcpu,
    /// `KVM_SET_USER_MEMORY_REGION` that creates a memslot.
    AddSlot,
    /// The same that deletes one.
    DeleteSlot,
    /// `KVM_IOEVENTFD` that assigns.
    AddIoeventfd,
    /// `KVM_IOEVENTFD` that deassigns.
    RemoveIoeventfd,
    /// `KVM_IRQFD` that assigns.
    AddIrqfd,
    /// `KVM_IRQFD` that deassigns.
    RemoveIrqfd,
    /// `KVM_SET_USER_MEMORY_REGION` that switches dirty logging on.
    StartDirtyLog,
    /// `KVM_GET_DIRTY_LOG`.
    ReadDirtyLog,
    /// `KVM_RUN`, until the guest comes out for a write to memory that nobody has. It has written to a page before.
    Exit,
}

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dimension {
    /// Mappings of the process (`/proc/self/maps`), beside those that it has anyway.
    Mappings,
    /// Other VMs of the process. They have nothing.
    Vms,
    /// vCPUs of the VM. None of them has run.
    Vcpus,
    /// Memslots of the VM, each of one page.
    Slots,
    /// Memslots of the VM with a dirty log, each of one page. So has the guest's memory, if there is a guest.
    LoggedSlots,
    /// Pages of the one memslot. None of them is touched.
    SlotPages,
    /// GiB from the guest physical address 0 to the one memslot.
    Gpa,
    /// Ioeventfds of the VM, at addresses of memory.
    Ioeventfds,
    /// Irqfds of the VM, all of one line.
    Irqfds,
    /// Threads that make the call at once, each for a VM of its own.
    Threads,
    /// Microseconds since the last registration of a device.
    Age,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::CreateVm,
        Self::CloseVm,
        Self::CreateVcpu,
        Self::AddSlot,
        Self::DeleteSlot,
        Self::AddIoeventfd,
        Self::RemoveIoeventfd,
        Self::AddIrqfd,
        Self::RemoveIrqfd,
        Self::StartDirtyLog,
        Self::ReadDirtyLog,
        Self::Exit,
    ];

    /// Its name on the command line and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateVm => "create-vm",
            Self::CloseVm => "close-vm",
            Self::CreateVcpu => "create-vcpu",
            Self::AddSlot => "add-slot",
            Self::DeleteSlot => "delete-slot",
            Self::AddIoeventfd => "add-ioeventfd",
            Self::RemoveIoeventfd => "remove-ioeventfd",
            Self::AddIrqfd => "add-irqfd",
            Self::RemoveIrqfd => "remove-irqfd",
            Self::StartDirtyLog => "start-dirty-log",
            Self::ReadDirtyLog => "read-dirty-log",
            Self::Exit => "exit",
        }
    }

    /// What the kernel is asked for.
    pub const fn of_kvm(self) -> &'static str {
        match self {
            Self::CreateVm => "KVM_CREATE_VM",
            Self::CloseVm => "close of a VM",
            Self::CreateVcpu => "KVM_CREATE_VCPU",
            Self::AddSlot | Self::DeleteSlot | Self::StartDirtyLog => "KVM_SET_USER_MEMORY_REGION",
            Self::AddIoeventfd | Self::RemoveIoeventfd => "KVM_IOEVENTFD",
            Self::AddIrqfd | Self::RemoveIrqfd => "KVM_IRQFD",
            Self::ReadDirtyLog => "KVM_GET_DIRTY_LOG",
            Self::Exit => "KVM_RUN",
        }
    }
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Mappings,
        Self::Vms,
        Self::Vcpus,
        Self::Slots,
        Self::LoggedSlots,
        Self::SlotPages,
        Self::Gpa,
        Self::Ioeventfds,
        Self::Irqfds,
        Self::Threads,
        Self::Age,
    ];

    /// Its name on the command line and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mappings => "mappings",
            Self::Vms => "vms",
            Self::Vcpus => "vcpus",
            Self::Slots => "slots",
            Self::LoggedSlots => "logged-slots",
            Self::SlotPages => "slot-pages",
            Self::Gpa => "gpa",
            Self::Ioeventfds => "ioeventfds",
            Self::Irqfds => "irqfds",
            Self::Threads => "threads",
            Self::Age => "age",
        }
    }

    /// What one of it is called.
    pub const fn one(self) -> &'static str {
        match self {
            Self::Mappings => "mapping",
            Self::Vms => "other VM",
            Self::Vcpus => "vCPU",
            Self::Slots => "slot",
            Self::LoggedSlots => "logged slot",
            Self::SlotPages => "page",
            Self::Gpa => "GiB",
            Self::Ioeventfds => "ioeventfd",
            Self::Irqfds => "irqfd",
            Self::Threads => "thread",
            Self::Age => "us",
        }
    }

    /// What it is, for a heading.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Mappings => "mappings of the process",
            Self::Vms => "other VMs of the process",
            Self::Vcpus => "vCPUs of the VM",
            Self::Slots => "memslots of the VM",
            Self::LoggedSlots => "memslots of the VM with a dirty log",
            Self::SlotPages => "pages of the memslot",
            Self::Gpa => "GiB from guest address 0 to the memslot",
            Self::Ioeventfds => "ioeventfds of the VM",
            Self::Irqfds => "irqfds of the VM",
            Self::Threads => "threads that call at once, each for its own VM",
            Self::Age => "microseconds since a device was registered",
        }
    }

    /// The calls that are measured against it.
    const fn calls(self) -> &'static [Call] {
        match self {
            Self::Mappings => {
                &[Call::CreateVm, Call::CloseVm, Call::CreateVcpu, Call::AddSlot, Call::DeleteSlot]
            }
            Self::Vms => &[Call::CreateVm, Call::CloseVm, Call::CreateVcpu, Call::AddSlot],
            Self::Vcpus => &[
                Call::CreateVcpu,
                Call::AddSlot,
                Call::DeleteSlot,
                Call::AddIoeventfd,
                Call::StartDirtyLog,
                Call::CloseVm,
            ],
            Self::Slots => &[
                Call::AddSlot,
                Call::DeleteSlot,
                Call::CreateVcpu,
                Call::StartDirtyLog,
                Call::CloseVm,
                Call::Exit,
            ],
            Self::LoggedSlots => {
                &[Call::AddSlot, Call::StartDirtyLog, Call::ReadDirtyLog, Call::CloseVm, Call::Exit]
            }
            Self::SlotPages => &[
                Call::AddSlot,
                Call::DeleteSlot,
                Call::StartDirtyLog,
                Call::ReadDirtyLog,
                Call::CloseVm,
            ],
            Self::Gpa => &[Call::AddSlot, Call::DeleteSlot, Call::StartDirtyLog, Call::CloseVm],
            Self::Ioeventfds => &[
                Call::AddIoeventfd,
                Call::RemoveIoeventfd,
                Call::AddSlot,
                Call::CloseVm,
                Call::Exit,
            ],
            Self::Irqfds => &[Call::AddIrqfd, Call::RemoveIrqfd, Call::CloseVm],
            Self::Threads => &[
                Call::CreateVm,
                Call::CreateVcpu,
                Call::AddSlot,
                Call::DeleteSlot,
                Call::AddIoeventfd,
                Call::CloseVm,
            ],
            Self::Age => &[
                Call::AddSlot,
                Call::DeleteSlot,
                Call::AddIoeventfd,
                Call::RemoveIoeventfd,
                Call::CreateVcpu,
                Call::CloseVm,
            ],
        }
    }
}

/// A call, and what it is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The call.
    pub call: Call,
    /// What grows. All else stays as it is.
    pub dimension: Dimension,
}

impl Pair {
    /// All that are measured, the calls in the order of a VM's life.
    pub fn all() -> impl Iterator<Item = Self> {
        Call::ALL.into_iter().flat_map(|call| {
            let has = move |dimension: &Dimension| dimension.calls().contains(&call);
            Dimension::ALL.into_iter().filter(has).map(move |dimension| Self { call, dimension })
        })
    }

    /// Its name, as in `create-vm/mappings`.
    pub fn name(self) -> String {
        format!("{}/{}", self.call.name(), self.dimension.name())
    }
}

impl FromStr for Pair {
    type Err = String;

    /// A pair that is measured, by its name.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::all().find(|pair| pair.name() == name);
        found.ok_or_else(|| format!("'{name}' is measured by nothing; mayfly laws --list has all"))
    }
}
