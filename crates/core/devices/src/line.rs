//! A device's interrupt, as a level.
//!
//! A device here is a state machine that says which level its interrupt line has. vCPUs share it under a lock of the
//! embedder's. The embedder must not drive the line under that lock: the interrupt controller may kick a vCPU, and a
//! thread that holds a device must not wake another one. If two CPUs drive the line after the lock, they may drive it in
//! the wrong order:
//!
//! | CPU 0 | CPU 1 |
//! | --- | --- |
//! | lock, level is high, unlock | |
//! | | lock, level is low, unlock |
//! | | drive low |
//! | drive high | |
//!
//! [`settle`] ends with the level that the device has, because the CPU that drives the line looks at the device again
//! *after* that. Take the last time that any CPU drives the line, and the look that follows it. If the look had seen
//! another level, that CPU would have driven the line again. So it saw the level that is driven. If the level changed after
//! that look, the CPU that changed it drives the line later, which would be a later time. So the line has the device's
//! level in the end. (The lock orders the looks. The line itself orders the CPUs that drive it, as any interrupt controller
//! does that several CPUs use.)
//!
//! # Edges
//!
//! A guest comes out once less for each interrupt if the controller takes an edge for it. But where the level comes back
//! before the line has fallen, there is no edge:
//!
//! | CPU 0, for the driver | CPU 1 |
//! | --- | --- |
//! | lock, acknowledged: level is low, unlock | |
//! | | lock, level is high, unlock |
//! | | drive high: it is high already |
//! | look: level is high | |
//! | drive high: likewise | |
//!
//! So the CPU that acknowledges calls [`fall`], which drives the line low whatever the device says, and then looks. Take
//! something that is told after the acknowledgement. If its CPU drives the line after the fall, the line rises then, or it rose
//! after the fall already. If its CPU drives the line before the fall, the look comes after that, and finds the level: then
//! `fall` makes the edge.

/// Drives a line to the level of its device, looking again until both agree: `level` takes the device's lock and gives
/// it back, `drive` is called without it.
///
/// Every change of a device that may move its level is followed by this, on the CPU that made it. It goes round again
/// only for a change that another CPU has made meanwhile, and each of those costs that CPU an exit.
///
/// ```
/// use std::cell::Cell;
/// use mayfly_devices::line::settle;
///
/// let (device, line) = (Cell::new(true), Cell::new(false));
/// settle(|| device.get(), |level| line.set(level));
/// assert!(line.get());
/// ```
pub fn settle(level: impl Fn() -> bool, drive: impl Fn(bool)) {
    let mut driven = level();
    loop {
        drive(driven);
        let now = level();
        if now == driven {
            return;
        }
        driven = now;
    }
}

/// Drives a line whose driver has acknowledged something: low, and high again if there is more. So there is an edge for what
/// was told after the acknowledgement, and for what was not acknowledged. `level` and `drive` are those of [`settle`].
pub fn fall(level: impl Fn() -> bool, drive: impl Fn(bool)) {
    drive(false);
    if level() {
        settle(level, drive);
    }
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};
    use std::vec::Vec;

    use super::{fall, settle};

    #[test]
    fn a_line_whose_device_keeps_its_level_is_driven_once() {
        let driven = RefCell::new(Vec::new());
        settle(|| true, |level| driven.borrow_mut().push(level));
        assert_eq!(*driven.borrow(), [true]);
    }

    #[test]
    fn a_level_that_changes_while_it_is_driven_is_driven_again() {
        let (device, driven) = (Cell::new(true), RefCell::new(Vec::new()));
        let drive = |level| {
            driven.borrow_mut().push(level);
            device.set(false);
        };
        settle(|| device.get(), drive);
        assert_eq!(*driven.borrow(), [true, false]);
    }

    #[test]
    fn a_line_falls_once_and_rises_where_something_is_left() {
        let driven = RefCell::new(Vec::new());
        fall(|| false, |level| driven.borrow_mut().push(level));
        assert_eq!(driven.take(), [false]);
        fall(|| true, |level| driven.borrow_mut().push(level));
        assert_eq!(driven.take(), [false, true]);
    }
}
