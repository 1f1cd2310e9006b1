//! The list of all experiments. Only the crate's front page imports this file: what runs or answers experiments takes the
//! list as a parameter.

use crate::cache_enable::CacheEnable;
use crate::device_registration::DeviceRegistration;
use crate::dirty_log::DirtyLog;
use crate::experiment::Experiment;
use crate::fork::Fork;
use crate::page_merge::PageMerge;
use crate::slot_delete::SlotDelete;
use crate::teardown::Teardown;

/// Every experiment of Mayfly, in the order of `mayfly list`.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[&DeviceRegistration, &CacheEnable, &SlotDelete, &PageMerge, &Teardown, &DirtyLog, &Fork]
}
