//! AMD's virtualisation (APM volume 2, chapter 15), as far as it is data.

pub mod exit;
pub mod features;
pub mod vmcb;
