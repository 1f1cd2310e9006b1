//! VMs, their vCPUs, and one run of a VM from its first vCPU to its end.

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm64;
pub(crate) mod buses;
mod counts;
mod course;
mod format;
mod freeze;
mod hearing;
mod host;
mod kept;
mod live;
mod machine;
mod origin;
mod relay;
mod run;
mod stop;
mod template;
mod vcpu;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

#[cfg(target_arch = "aarch64")]
pub(crate) use arm64 as arch;
pub(crate) use format::{Kinds, TableFormat, WithFormat};
pub(crate) use hearing::Hearing;
pub(crate) use host::Host;
pub(crate) use machine::Machine;
pub(crate) use origin::Origin;
pub(crate) use run::Run;
pub(crate) use stop::Stop;
pub(crate) use template::Template;
pub(crate) use vcpu::{put, wait};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86 as arch;
