//! What the host's merger has merged.

use mayfly_kvm::Ksm;

/// What is merged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Merged {
    /// Pages of this process, where the kernel counts them.
    pub(super) own: Option<u64>,
    /// `pages_shared` and `pages_sharing`, of all processes.
    pub(super) shared: u64,
    pub(super) sharing: u64,
}

impl Merged {
    pub(super) fn of(ksm: &Ksm) -> anyhow::Result<Self> {
        Ok(Self {
            own: ksm.own_merged(),
            shared: ksm.counter("pages_shared")?,
            sharing: ksm.counter("pages_sharing")?,
        })
    }

    /// What has come since.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            own: self.own.zip(before.own).map(|(now, before)| now.saturating_sub(before)),
            shared: self.shared.saturating_sub(before.shared),
            sharing: self.sharing.saturating_sub(before.sharing),
        }
    }

    /// Of so many pages in so many VMs, how many are merged, and how many that is when all are. A frame that several
    /// pages have is shared by one of them, and the others are sharing it.
    pub(super) fn of_all(self, pages: u64, vms: u64) -> (u64, u64) {
        match self.own {
            Some(own) if vms > 1 => (own, pages * vms),
            Some(_) => (0, 0),
            None => (self.sharing, pages * vms.saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_its_own_pages_all_are_merged_and_of_everybodys_all_but_one_of_each() {
        let own = Merged { own: Some(30), shared: 0, sharing: 99 };
        assert_eq!(own.of_all(10, 3), (30, 30));
        let everybody = Merged { own: None, shared: 0, sharing: 20 };
        assert_eq!(everybody.of_all(10, 3), (20, 20));
        assert_eq!(own.of_all(10, 1), (0, 0), "a page that is alone has no equal");
        assert_eq!(Merged::default().of_all(10, 1), (0, 0));
    }

    #[test]
    fn what_others_take_apart_meanwhile_is_no_less_than_none() {
        let before = Merged { own: Some(5), shared: 10, sharing: 100 };
        let since = Merged { own: Some(7), shared: 4, sharing: 130 }.since(before);
        assert_eq!((since.own, since.shared, since.sharing), (Some(2), 0, 30));
    }
}
