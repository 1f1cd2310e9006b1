//! What the Mayfly core asks of the world: waiting, time, barriers, accounting, fallible memory
#![no_std]
