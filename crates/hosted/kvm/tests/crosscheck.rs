//! The C program that `make crosscheck` holds Mayfly's figures against.

#![cfg(target_arch = "x86_64")]

use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

use mayfly_kvm::Kvm;

#[test]
fn it_compiles_without_a_warning_and_times_what_it_says() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/kvm-times.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kvm-times");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    let compiled = Command::new("cc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let run = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for wrong in [&[][..], &["first-memslot"], &["first-memslot", "0"], &["else", "1"]] {
        assert_eq!(run(wrong), (Some(2), String::new()), "{wrong:?}");
    }
    if let Err(error) = Kvm::open() {
        let _ = writeln!(stderr(), "not run in part: {error}");
        return;
    }
    for name in ["first-memslot", "slot-delete", "slot-delete-cpu"] {
        let (code, said) = run(&[name, "3"]);
        assert_eq!(code, Some(0));
        let fields: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(fields[..2], [name, "3"]);
        let times: Vec<u64> = fields[2..].iter().map(|field| field.parse().unwrap()).collect();
        assert!(times.len() == 3 && times[0] > 0 && times.is_sorted(), "{said}");
    }
}
