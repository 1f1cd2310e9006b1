//! The software machine: real memory, vCPU threads, guest programs
