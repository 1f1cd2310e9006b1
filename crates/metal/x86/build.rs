//! Has the image of each small kernel lie where a loader puts it: at an address of its own.

fn main() {
    println!("cargo::rerun-if-changed=src/kernel/link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-T{here}/src/kernel/link.ld");
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
