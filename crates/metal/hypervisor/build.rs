//! Has the image be one that the architecture's boot loaders start.

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let here = variable("CARGO_MANIFEST_DIR");
    let (arch, arguments): (_, &[&str]) = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        // It runs wherever it is loaded: addresses in data are relocated at the start, those in code are relative.
        "aarch64" => ("arm64", &["-pie", "-znotext", "-znorelro", "--no-dynamic-linker"]),
        // It lies at an address of its own.
        _ => ("x86", &["-no-pie"]),
    };
    let script = format!("{here}/src/bare/boot/{arch}/link.ld");
    println!("cargo::rerun-if-changed={script}");
    if variable("CARGO_CFG_TARGET_OS") == "none" {
        println!("cargo::rustc-link-arg-bins=-T{script}");
        for argument in arguments {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}
