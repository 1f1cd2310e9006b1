//! The same VM life on /dev/kvm
