//! What of SVM a CPU has.

use core::fmt;

/// What `CPUID` says of SVM (APM volume 3, appendix E.4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    revision: u8,
    asids: u32,
    bits: u32,
}

/// `CPUID.8000_0001H:ECX[2]`: there is SVM.
const SVM: u32 = 1 << 2;

/// The bits of `CPUID.8000_000AH:EDX` that Mayfly asks for. It runs without any but the first.
const NAMES: [(u32, &str); 8] = [
    (0, "nested paging"),
    (3, "NRIP save"),
    (5, "clean bits"),
    (6, "flush by ASID"),
    (7, "decode assists"),
    (10, "pause filter"),
    (13, "AVIC"),
    (16, "virtual GIF"),
];

impl Features {
    /// Of `ECX` of leaf `8000_0001H`, and of `EAX`, `EBX` and `EDX` of leaf `8000_000AH`. `None` without SVM.
    pub const fn new(extended: u32, revision: u32, asids: u32, bits: u32) -> Option<Self> {
        if extended & SVM == 0 {
            return None;
        }
        Some(Self { revision: revision as u8, asids, bits })
    }

    /// How many ASIDs there are, of which 0 is the host's.
    pub const fn asids(self) -> u32 {
        self.asids
    }

    /// `TLB_CONTROL` of an entry (15.16.1): everything is flushed if `all` TLBs are outdated; what the guest's own ASID has
    /// is flushed if that `one` is, or everything, where the CPU flushes no ASID alone.
    pub const fn tlb_control(self, all: bool, one: bool) -> u32 {
        let has_flush_by_asid = self.bits >> 6 & 1 != 0;
        match (all, one) {
            (false, false) => 0,
            (false, true) if has_flush_by_asid => 3,
            _ => 1,
        }
    }

    /// Whether the CPU says where the next instruction is.
    pub const fn has_next_rip(self) -> bool {
        self.bits >> 3 & 1 != 0
    }

    /// Whether guests have page tables of their own, which Mayfly cannot do without.
    pub const fn has_nested_paging(self) -> bool {
        self.bits & 1 != 0
    }

    /// The names of what it has, or lacks.
    fn names(self, has: bool) -> impl Iterator<Item = &'static str> {
        let is_meant = move |bit: u32| (self.bits >> bit & 1 != 0) == has;
        NAMES.into_iter().filter(move |(bit, _)| is_meant(*bit)).map(|(_, name)| name)
    }
}

/// What it has, and what it lacks, in a line.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SVM revision {}, {} ASIDs", self.revision, self.asids)?;
        for (has, word) in [(true, "has"), (false, "lacks")] {
            for (index, name) in self.names(has).enumerate() {
                match index {
                    0 => write!(f, "; {word} {name}")?,
                    _ => write!(f, ", {name}")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_cpu_without_svm_has_no_features_of_it() {
        assert_eq!(Features::new(!SVM, 1, 16, u32::MAX), None);
    }

    /// `-cpu EPYC,+svm,+npt` of QEMU 7.2.
    #[test]
    fn what_there_is_and_what_there_is_not_are_named() {
        let features = Features::new(SVM, 1, 16, 1).unwrap();
        assert!(features.has_nested_paging());
        assert_eq!(
            features.to_string(),
            "SVM revision 1, 16 ASIDs; has nested paging; lacks NRIP save, clean bits, flush by ASID, \
             decode assists, pause filter, AVIC, virtual GIF"
        );
        // Without flushing by ASID, either way everything is flushed.
        assert_eq!((features.tlb_control(false, false), features.tlb_control(false, true)), (0, 1));
        let none = Features::new(SVM, 1, 16, 0).unwrap();
        assert!(!none.has_nested_paging() && !none.to_string().contains("has"));
        let all = Features::new(SVM, 1, 0x8000, u32::MAX).unwrap();
        assert_eq!((all.tlb_control(false, true), all.tlb_control(true, true)), (3, 1));
        assert!(!all.to_string().contains("lacks"));
    }
}
