//! Tells a VM whatever change of a page's frame a test names. Frames of these tests are numbers: nothing accesses what a
//! guest is given.

use mayfly_memslot::Hva;
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Announcement, Owed};
use mayfly_vm::{PageChange, Vm, World};

pub(crate) trait ChangesAny {
    fn change_any_pte(&self, announcement: &Announcement, from: Hva, change: &PageChange) -> bool;

    fn change_any_ptes(
        &self,
        announcement: &Announcement,
        from: Hva,
        changes: &[Option<PageChange>],
    );

    fn change_any_ptes_owing(
        &self,
        announcement: &Announcement,
        from: Hva,
        changes: &[Option<PageChange>],
    ) -> Owed;

    fn copy_any_on_write(
        &self,
        from: Hva,
        frames: [u64; 2],
        copy: impl FnOnce(),
        found: impl FnOnce(),
    );
}

impl<W: World<Backing = Hva>> ChangesAny for Vm<W> {
    fn change_any_pte(&self, announcement: &Announcement, from: Hva, change: &PageChange) -> bool {
        // SAFETY: no guest of these tests accesses memory.
        unsafe { self.change_pte(announcement, from, change) }
    }

    fn change_any_ptes(
        &self,
        announcement: &Announcement,
        from: Hva,
        changes: &[Option<PageChange>],
    ) {
        // SAFETY: as above.
        unsafe { self.change_ptes(announcement, from, changes) };
    }

    fn change_any_ptes_owing(
        &self,
        announcement: &Announcement,
        from: Hva,
        changes: &[Option<PageChange>],
    ) -> Owed {
        // SAFETY: as above.
        unsafe { self.change_ptes_owing(announcement, from, changes) }
    }

    fn copy_any_on_write(
        &self,
        from: Hva,
        frames: [u64; 2],
        copy: impl FnOnce(),
        found: impl FnOnce(),
    ) {
        let [old, new] = frames.map(Pfn::new);
        // SAFETY: as above.
        unsafe { self.copy_on_write(from, old, new, copy, found) };
    }
}
