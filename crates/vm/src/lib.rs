//! The life of a VM: create, vCPUs, memory, devices, destroy
#![no_std]
