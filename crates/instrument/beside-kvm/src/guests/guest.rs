//! A Linux guest: what it is made of, as a VM of Mayfly's, and as the VMM's.

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Its name, in letters.
    pub(crate) name: &'static str,
    /// vCPUs.
    pub(crate) vcpus: u32,
    /// MiB of memory.
    pub(crate) memory: u32,
    /// MiB of its disk, which is in memory.
    pub(crate) disk: u32,
    /// Its tap on the host, and the last byte of its card's address.
    pub(crate) card: u8,
    /// The arguments of its kernel.
    pub(crate) arguments: String,
}

/// The network of all guests.
const NETWORK: &str = "lan";

impl Guest {
    /// The address of its card.
    pub(crate) fn mac(&self) -> String {
        format!("52:54:00:12:34:{:02x}", self.card)
    }

    /// The VM's parameters, and those of its kernel: what Mayfly takes as the arguments of a kernel.
    pub(crate) fn plan(&self) -> String {
        format!("name={} start=no {}", self.name, self.parameters())
    }

    /// The command of Mayfly's monitor that makes it, with the kernel and the ramdisk of another.
    pub(crate) fn like(&self, other: &str) -> String {
        format!("vm create {} {other} {}", self.name, self.parameters())
    }

    fn parameters(&self) -> String {
        let Self { vcpus, memory, disk, arguments, .. } = self;
        let mac = self.mac();
        format!(
            "vcpus={vcpus} memory={memory}M disk={disk}M net={NETWORK} mac={mac} hvc=yes -- {arguments}"
        )
    }

    /// The file of its disk on the host.
    pub(crate) fn disk_file(&self) -> String {
        format!("/tmp/{}", self.name)
    }

    /// Its tap on the host.
    pub(crate) fn tap(&self) -> String {
        format!("tap{}", self.card)
    }

    /// The VMM's arguments, each without blanks but for the kernel's. What it prints at its virtio console goes to the
    /// VMM's standard output. It has the devices that Mayfly's VM has, behind the transport that the VMM's machine has for
    /// them: PCI, with an interrupt for each queue. The kernel carries packets (vhost).
    ///
    /// SVE is left out, which Mayfly's guests do not have: otherwise KVM would switch more registers.
    pub(crate) fn vmm(&self) -> Vec<String> {
        let Self { vcpus, memory, arguments, .. } = self;
        let mut words: Vec<String> =
            "-accel kvm -M virt,gic-version=3 -cpu host,sve=off -nodefaults -display none -no-reboot -kernel /Image -initrd /guest"
                .split(' ')
                .map(str::to_owned)
                .collect();
        let mut more = |option: &str, value: String| words.extend([option.to_owned(), value]);
        more("-smp", vcpus.to_string());
        more("-m", memory.to_string());
        more("-append", arguments.clone());
        more("-chardev", "stdio,id=console".to_owned());
        more("-device", "virtio-serial-pci".to_owned());
        more("-device", "virtconsole,chardev=console".to_owned());
        more("-drive", format!("file={},format=raw,if=none,id=disk", self.disk_file()));
        more("-device", "virtio-blk-pci,drive=disk".to_owned());
        let tap = self.tap();
        more("-netdev", format!("tap,id=net,ifname={tap},script=no,downscript=no,vhost=on"));
        more("-device", format!("virtio-net-pci,netdev=net,mac={},romfile=", self.mac()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_as_much_of_everything() {
        let guest = Guest {
            name: "asks",
            vcpus: 3,
            memory: 256,
            disk: 16,
            card: 7,
            arguments: "console=hvc0 quiet".to_owned(),
        };
        let plan = guest.plan();
        let own =
            "name=asks start=no vcpus=3 memory=256M disk=16M net=lan mac=52:54:00:12:34:07 hvc=yes";
        assert_eq!(plan.split_once(" -- "), Some((own, "console=hvc0 quiet")));
        let like = guest.like("other");
        assert_eq!(like, plan.replace("name=asks start=no", "vm create asks other"));
        let words = guest.vmm();
        let has = |option: &str, value: &str| {
            words.windows(2).any(|two| two[0] == option && two[1] == value)
        };
        assert!(has("-smp", "3") && has("-m", "256") && has("-append", "console=hvc0 quiet"));
        assert!(has("-device", "virtio-net-pci,netdev=net,mac=52:54:00:12:34:07,romfile="));
        assert!(has("-netdev", "tap,id=net,ifname=tap7,script=no,downscript=no,vhost=on"));
        assert!(has("-drive", "file=/tmp/asks,format=raw,if=none,id=disk"));
        assert!(words.iter().filter(|word| word.contains(' ')).eq([&guest.arguments]));
    }
}
