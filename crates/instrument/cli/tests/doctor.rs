//! `mayfly doctor`, as a person and as a monitor see it.

#[path = "host/common.rs"]
mod common;

use std::fs;
use std::io::{Write, stderr};
use std::process::{Command, Output};

use mayfly_kvm::Kvm;
use rustix::process::geteuid;
use serde_json::Value;

use common::{emptied, scratch, text, with_its_own_run};

fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.arg("doctor").args(arguments).env("COLUMNS", "80");
    command
}

/// Runs what must fail with `code` and one line, which is returned.
fn failure(mut command: Command, code: i32) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = text(&stderr).to_owned();
    assert_eq!(status.code(), Some(code), "{said}");
    assert!(stdout.is_empty(), "{}", text(&stdout));
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn what_it_is_told_wrong_is_one_line_before_anything_is_measured() {
    let said = failure(doctor(&["--fail-if", "memslot_ad.p50 > 1ms"]), 2);
    assert!(said.contains("'memslot_ad.p50 > 1ms' names no figure of an examination"), "{said}");
    let said = failure(doctor(&["--fail-if", "wait > 0"]), 2);
    assert!(said.contains("'wait > 0' names no figure of an examination"), "{said}");
    assert!(said.contains("findings, waits, unclear, unmeasured, failed"), "{said}");
    let said = failure(doctor(&["--fail-if", "waits > 1ms"]), 2);
    assert!(said.contains("doctor.kvm.found.waits is not a time"), "{said}");
    let said = failure(doctor(&["--fail-if", "memslot_add"]), 2);
    assert!(said.contains("is not a threshold"), "{said}");
    let said = failure(doctor(&["--json", "-", "--openmetrics", "/dev/stdout"]), 2);
    assert!(said.contains("cannot both go to standard output"), "{said}");
    let said = failure(doctor(&["--json", "/nonexistent/doctor.json"]), 1);
    assert!(said.contains("/nonexistent/doctor.json"), "{said}");
    failure(doctor(&["--full", "--quiet"]), 2);
}

/// An examination of this host: its figures are whatever they are, their form is not.
#[test]
fn a_host_is_examined_told_written_and_held_against_a_bound() {
    if let Err(error) = Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    let metrics = scratch("doctor.prom");
    let kept = emptied("doctor-kept");
    let bound = "found.findings >= 0";
    // Where a run keeps what it has measured: root below `/run`, others in their cache.
    let mut command = with_its_own_run(&kept).unwrap_or_else(|| {
        if geteuid().is_root() {
            let _ = writeln!(stderr(), "not run in part: this root may not have a /run of its own");
        }
        Command::new(env!("CARGO_BIN_EXE_mayfly"))
    });
    command.env("XDG_CACHE_HOME", &kept).env("COLUMNS", "80");
    command.args(["doctor", "--json", "-", "--fail-if", bound, "--openmetrics"]).arg(&metrics);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = text(&stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("mayfly: found.findings >= 0: doctor.kvm.found.findings is "), "{said}");
    assert!(said.contains("nothing on the host was changed"), "{said}");
    let kept: Vec<_> = fs::read_dir(&kept).unwrap().collect();
    assert!(kept.is_empty(), "nothing is kept for anybody: {kept:?}");

    let document: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(document["schema"], "mayfly.doctor/1");
    let pairs = document["pairs"].as_array().unwrap();
    assert!(pairs.len() > 50, "{}", pairs.len());
    for pair in pairs {
        let verdict = pair["verdict"].as_str().unwrap();
        assert!(["waits", "does-not", "unclear", "unknown"].contains(&verdict));
    }
    let codes = document["findings"].as_array().unwrap().iter().map(|one| one["code"].clone());
    let samples = fs::read_to_string(&metrics).unwrap();
    for code in codes {
        let line = format!("mayfly_doctor_finding{{code={code}}} 1\n");
        assert!(samples.contains(&line), "{line}");
    }
    assert!(samples.ends_with("# EOF\n"));
}

/// Has every ioctl of this number fail with EPERM in what the command runs, as a sandbox does.
#[cfg(target_arch = "x86_64")]
fn without_ioctl(command: &mut Command, number: u32) {
    use std::io;
    use std::os::unix::process::CommandExt;

    let code = |code: u32| u16::try_from(code).unwrap();
    let statement = |c, k| libc::sock_filter { code: c, jt: 0, jf: 0, k };
    let load = |offset| statement(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), offset);
    let give = |action| statement(code(libc::BPF_RET | libc::BPF_K), action);
    // Goes on if it is `k`, else past `jf` statements.
    let is = |k, jf| libc::sock_filter {
        code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
        jt: 0,
        jf,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let filter = [
        load(0),
        is(u32::try_from(libc::SYS_ioctl).unwrap(), 3),
        load(24),
        is(number, 1),
        give(refused),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: between fork and exec nothing is allocated and no lock is taken: two system calls, which read `filter`, that
    // was made before.
    unsafe {
        command.pre_exec(move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            let no_more: libc::c_ulong = 1;
            let none: libc::c_ulong = 0;
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, no_more, none, none, none) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                    != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_that_a_sandbox_refuses_is_named_and_the_rest_is_measured() {
    const KVM_CREATE_IRQCHIP: u32 = 0xae60;
    if let Err(error) = Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    let mut command = doctor(&["--quiet", "--json", "-"]);
    without_ioctl(&mut command, KVM_CREATE_IRQCHIP);
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert_eq!((status.code(), text(&stderr)), (Some(0), ""));
    let document: Value = serde_json::from_slice(&stdout).unwrap();
    let failed = document["failed"].as_array().unwrap();
    let refused =
        "memslot-add right after irqchip-full: KVM_CREATE_IRQCHIP: Operation not permitted";
    assert!(failed.iter().any(|one| one.as_str().unwrap().starts_with(refused)), "{failed:?}");
    let pairs = document["pairs"].as_array().unwrap();
    let of = |after: &str, call: &str| {
        pairs.iter().find(|pair| pair["after"] == after && pair["call"] == call).unwrap()
    };
    assert_eq!(of("irqchip-full", "memslot-add")["verdict"], "unknown");
    assert!(of("ioeventfd-add", "memslot-add").get("error").is_none());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_kvm_that_says_nothing_is_one_line_and_code_three() {
    const KVM_GET_API_VERSION: u32 = 0xae00;
    if let Err(error) = Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    let mut command = doctor(&[]);
    without_ioctl(&mut command, KVM_GET_API_VERSION);
    let said = failure(command, 3);
    assert!(said.contains("KVM_GET_API_VERSION: Operation not permitted"), "{said}");
}

#[test]
fn a_host_without_kvm_is_one_line_and_code_three() {
    // A file system of its own over /dev; where that is not allowed there is nothing to try.
    let script = "mount -t tmpfs none /dev 2>/dev/null || exit 77; exec \"$0\" doctor";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_mayfly")]);
    match command.output() {
        Ok(tried) if tried.status.code() == Some(3) => {
            let said = text(&tried.stderr);
            assert!(said.contains("/dev/kvm: no such device"), "{said}");
            assert_eq!((said.lines().count(), tried.stdout.len()), (1, 0), "{said}");
        }
        Ok(tried) if tried.status.code() == Some(77) => {}
        Ok(tried) => {
            let said = text(&tried.stderr);
            assert!(said.contains("unshare"), "{:?}: {said}", tried.status);
        }
        Err(_) => {}
    }
}
