//! What guests have in common that do random things, on each architecture ([`wild`]).

#![no_std]

pub mod wild;
