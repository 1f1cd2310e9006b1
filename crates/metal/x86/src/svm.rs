//! AMD's virtual machines, as far as they are data.

pub mod event;
pub mod exit;
pub mod features;
pub mod flush;
pub mod nmi;
pub mod permissions;
pub mod vmcb;
