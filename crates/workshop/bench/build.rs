//! Links liburcu, and compiles the loops that have its readers inlined.

fn main() {
    for (flavour, name) in [("liburcu-memb", "liburcu"), ("liburcu-qsbr", "qsbr")] {
        println!("cargo::rerun-if-changed=csrc/{name}.c");
        let Ok(liburcu) = pkg_config::Config::new().atleast_version("0.12").probe(flavour) else {
            println!(
                "cargo::error=liburcu (0.12 or later) is not installed; `make bench` installs it, or install what Debian calls liburcu-dev and pkg-config"
            );
            return;
        };
        cc::Build::new()
            .file(format!("csrc/{name}.c"))
            .includes(liburcu.include_paths)
            // As in a program: code for a shared library would call a function to find the thread's record.
            .pic(false)
            .warnings(true)
            .compile(&format!("mayfly_bench_{name}"));
    }
}
