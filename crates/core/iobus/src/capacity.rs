//! How much a bus holds.

/// How many devices a bus can have: `NR_IOBUS_DEVS` of Linux' `include/linux/kvm_host.h`. Ioeventfds are not counted
/// there (`kvm_io_bus_register_dev`: their number is bounded by that of open files), nor here.
pub const MAX_DEVICES: usize = 1000;
