//! A VM whose process has a command line that names it. It needs KVM.

use std::io::{Write, stderr};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use mayfly_kvm::{Kvm, Vm};
use mayfly_watch::{Watcher, json, text};

#[test]
fn a_vm_is_called_what_the_command_line_of_its_process_says() {
    let Ok(kvm) = Kvm::open() else {
        let _ = writeln!(stderr(), "not run: there is no KVM here");
        return;
    };
    let vm = Vm::create(&kvm).unwrap();
    // SAFETY: it takes and gives a number. The child is to inherit it, so it is not closed by an exec.
    let inherited = unsafe { libc::fcntl(vm.fd().as_raw_fd(), libc::F_DUPFD, 100) };
    assert!(inherited >= 100);
    // It lives until its input ends.
    let child = Command::new("sh")
        .args(["-c", "read line; :", "vmm", "-accel", "kvm", "-name", "guest=web-1,process=x"])
        .stdin(Stdio::piped())
        .spawn();
    // SAFETY: it is open, and nothing else of this process has it.
    unsafe { libc::close(inherited) };
    let mut child = child.unwrap();
    let sight = Watcher::new(child.id().try_into().ok()).look(Duration::from_millis(100));
    drop(child.stdin.take());
    child.wait().unwrap();

    let [row] = &sight.rows[..] else { panic!("{sight:?}") };
    let expected = (child.id().cast_signed(), inherited, Some("web-1"));
    assert_eq!((row.pid, row.vm, row.name.as_deref()), expected);
    assert!(text(&sight, 80).contains(" web-1 "), "{}", text(&sight, 80));
    assert!(json(&sight).contains("\"name\":\"web-1\""), "{}", json(&sight));
}
