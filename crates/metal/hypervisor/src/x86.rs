//! What knows x86-64: the list of VMs that a loader gives, and the machine of a guest beside what
//! [`mayfly_x86::machine`] has of it.

pub mod layout;
pub mod list;
pub mod part;
