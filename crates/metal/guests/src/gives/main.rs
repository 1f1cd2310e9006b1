//! A guest that gives memory back by its balloon, with its MMU off, so past the caches: `gives=MIB` on its command line says of
//! how much.
//!
//! It fills its memory, gives back some of it, and checks all of it: what was given back reads as zeroes, or, in a fork, as the
//! frozen VM's, and everything else as it was written. After some rounds it fills its memory for forks, and waits for a byte that
//! is typed: it may be frozen then, and each fork goes on so. A `g` has it give all of that memory back, and an `e` has it power
//! off.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-gives-guest is a guest, not a process: `make metal-test` builds and starts it"
    );
    std::process::exit(1);
}

#[cfg(target_os = "none")]
mod balloon;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod rounds;

#[cfg(target_os = "none")]
core::arch::global_asm!(
    include_str!("../header.S"),
    r#"
first:
    adrp x1, stacks_end
    mov sp, x1
    bl {main}
    "#,
    main = sym rounds::main,
);
