//! Has the image of the probe lie where a loader puts it: at an address of its own.

fn main() {
    println!("cargo::rerun-if-changed=src/probe/link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bin=mayfly-x86-probe=-T{here}/src/probe/link.ld");
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
