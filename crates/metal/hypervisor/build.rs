//! Has the image be one that runs wherever it is loaded.

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-T{here}/link.ld");
        // Addresses in data are relocated at the start, those in code are relative.
        for argument in ["-pie", "-znotext", "-znorelro", "--no-dynamic-linker"] {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}
