//! Links liburcu, and compiles the loop that has its readers inlined.

fn main() {
    println!("cargo::rerun-if-changed=csrc/liburcu.c");
    let Ok(liburcu) = pkg_config::Config::new().atleast_version("0.12").probe("liburcu-memb")
    else {
        println!(
            "cargo::error=liburcu (0.12 or later) is not installed; `make bench` installs it, or install what Debian calls liburcu-dev and pkg-config"
        );
        return;
    };
    cc::Build::new()
        .file("csrc/liburcu.c")
        .includes(liburcu.include_paths)
        // As in a program: code for a shared library would call a function to find the thread's record.
        .pic(false)
        .warnings(true)
        .compile("mayfly_bench_liburcu");
}
