//! Guest I/O address to device, read under SRCU
#![no_std]
