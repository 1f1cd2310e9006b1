//! The first process of the Linux under whose KVM the VMM runs guests.

use super::files::{OF_HOST, VMM};
use super::guest::Guest;
use super::job::Job;

/// The events of which the kernel makes a histogram, each with the keys that are counted: of reads of devices'
/// registers it traces the answers, too.
const EVENTS: [(&str, &str); 3] = [
    ("kvm_exit", "keys=ret,esr_ec"),
    ("kvm_handle_sys_reg", "keys=hsr.hex:size=4096"),
    ("kvm_mmio", "keys=gpa.hex,type:size=4096 if type != 1"),
];

/// What it does, as a script: it makes the network of the guests, runs them while they are counted, and again while their
/// exits are, if they are to be.
pub(super) fn init(job: Job, counts_exits: bool) -> String {
    let guests = job.guests();
    let mut lines = vec![BEGIN.replace("MODULES", &OF_HOST.join(" "))];
    let mut line = |text: String| lines.push(text);
    for guest in &guests {
        let (tap, file, mib) = (guest.tap(), guest.disk_file(), guest.disk);
        line(format!(
            "tunctl -t {tap} >/dev/null && brctl addif lan {tap} && ip link set {tap} up"
        ));
        line(format!("dd if=/dev/zero of={file} bs=1M count={mib} 2>/dev/null"));
    }
    let (first, others) = guests.split_first().expect("each job has a guest");
    for other in others {
        line(format!("{} >/dev/null 2>&1 &", run(other)));
    }
    if job == Job::Boot {
        // The VMM alone: it makes a VM that it never runs, and is told to end.
        line(format!("printf '{QUIT}' >/tmp/quit"));
        let alone = run(first).replace("stdio,id=console", "null,id=console");
        line(format!(
            "/mayfly phases $at --last {ALONE} -- sh -c '{alone} -S -qmp stdio </tmp/quit >/dev/null 2>&1'"
        ));
    }
    line(format!("/mayfly phases $at --last {} -- {}", job.last(), run(first)));
    if job == Job::Boot && counts_exits {
        line("cd /sys/kernel/tracing/events/kvm".to_owned());
        for (event, keys) in EVENTS {
            line(format!("echo 'hist:{keys}' >{event}/trigger"));
        }
        line(format!("{} >/dev/null", run(first)));
        for (event, _) in EVENTS {
            line(format!("grep hitcount: {event}/hist"));
        }
    }
    line("poweroff -f".to_owned());
    lines.join("\n") + "\n"
}

/// The phase in which the VMM runs no guest.
pub(super) const ALONE: &str = "vmm-alone";

/// What the VMM is told by which it ends (QMP).
const QUIT: &str = r#"{"execute":"qmp_capabilities"}{"execute":"quit"}"#;

/// Only KVM prints at which level the kernel runs, when it starts.
const BEGIN: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs trace /sys/kernel/tracing
for module in MODULES; do insmod /lib/$module.ko; done
at=
if dmesg | grep -q 'kvm .*: VHE mode initialized'; then at=--kernel-at-el2; fi
echo \"mayfly-beside-kvm linux $(uname -r)\"
brctl addbr lan && ip link set lan up";

/// The VMM's command for a guest, with its standard error on the console.
fn run(guest: &Guest) -> String {
    let words = guest.vmm().into_iter();
    let words = words.map(|word| if word.contains(' ') { format!("\"{word}\"") } else { word });
    format!("/usr/bin/{VMM} {}", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::LINUX;

    #[test]
    fn a_guest_is_counted_and_its_exits_are_counted_in_another_run() {
        let counted = init(Job::Boot, false);
        let init = init(Job::Boot, true);
        assert!(
            init.starts_with(counted.trim_end_matches("poweroff -f\n"))
                && !counted.contains("hist")
        );
        let at = |text: &str| init.find(text).unwrap_or_else(|| panic!("{text}: {init}"));
        let counted =
            at("/mayfly phases $at --last boot -- /usr/bin/qemu-system-aarch64 -accel kvm");
        assert!(at("--last vmm-alone -- sh -c '") < counted && at("brctl addif lan") < counted);
        assert!(
            counted < at("kvm_exit/trigger") && at("kvm_mmio/trigger") < at(">/dev/null\ngrep")
        );
        assert!(init.starts_with("#!/bin/busybox sh\n") && init.ends_with("poweroff -f\n"));
        assert!(init.contains(LINUX) && init.contains("for module in tun tap "));
        assert!(!init.contains("MODULES"));
    }

    #[test]
    fn who_answers_runs_beside_who_asks() {
        let init = init(Job::Traffic, true);
        let at = |text: &str| init.find(text).unwrap_or_else(|| panic!("{text}: {init}"));
        let taps = at("brctl addif lan tap1").max(at("brctl addif lan tap2"));
        let answers = at("mayfly.answers=7\"");
        assert!(taps < answers && init[answers..].lines().next().unwrap().ends_with("2>&1 &"));
        assert!(answers < at("/mayfly phases $at --last off -- "));
        assert!(!init.contains(ALONE) && !init.contains("hist"));
    }
}
