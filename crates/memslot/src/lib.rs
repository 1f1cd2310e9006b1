//! Guest frame to host memory: memslots as immutable snapshots
#![no_std]
