//! Tells the command what it is built from and by, for the record.

use std::path::Path;
use std::process::Command;

fn main() {
    // Whatever the command is made of; and what git knows of it.
    println!("cargo::rerun-if-changed=..");
    println!("cargo::rerun-if-changed=../../../Cargo.lock");
    for name in ["HEAD", "index"] {
        let path = output("git", &["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    set("MAYFLY_RUSTC", output(&rustc, &["--version"]));
    set("MAYFLY_PROFILE", std::env::var("PROFILE").ok());
    set("MAYFLY_COMMIT", output("git", &["rev-parse", "HEAD"]));
    let changes = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    set("MAYFLY_MODIFIED", changes.map(|changes| (!changes.is_empty()).to_string()));
}

fn set(name: &str, value: Option<String>) {
    println!("cargo::rustc-env={name}={}", value.unwrap_or_default());
}

/// What a command prints, if it is there and succeeds.
fn output(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
