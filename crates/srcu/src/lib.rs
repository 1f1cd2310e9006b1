//! Sleepable RCU whose grace periods are as urgent as whoever waits for them
#![no_std]
