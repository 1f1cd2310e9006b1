//! Pages that are shared, and get frames of their own again: what a page merger and a copy-on-write do, in the order of
//! their notifications.

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Announcement, Owed, Replacement};

use crate::host::Host;
use crate::model::granted::ReplacesAny;
use crate::model::{gfn, gfns};
use crate::{SHORT, Vm};

/// Puts `page` into a shared frame of the same contents.
pub(crate) fn merge<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host, page: u64) {
    let _changes = host.changes.lock().unwrap();
    if host.is_shared(page) {
        return;
    }
    let invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
    vm.stage2.write_protect(gfns(page, 1), SHORT, |_, _| ());
    host.seal(host.pfn(page), true);
    let (old, new) = host.move_page(page);
    host.seal(new, true);
    host.set_shared(page, true);
    replace(vm, host, &invalidation, page, old, new);
}

/// As [`merge`], but the invalidation is owed. Returns what is, and for which frame.
pub(crate) fn merge_owing<const BREAK: bool>(
    vm: &Vm<BREAK>,
    host: &Host,
    page: u64,
) -> Option<(Owed, u64)> {
    let _changes = host.changes.lock().unwrap();
    if host.is_shared(page) {
        return None;
    }
    let invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
    vm.stage2.write_protect(gfns(page, 1), SHORT, |_, _| ());
    host.seal(host.pfn(page), true);
    let (old, new) = host.move_page(page);
    host.seal(new, true);
    host.set_shared(page, true);
    host.keep(page, old);
    let with = Replacement { old: Pfn::new(old), new: Pfn::new(new), same_contents: true };
    let owed =
        vm.stage2.replace_any_owing(&invalidation, gfns(page, 1), SHORT, |_| Some(with), |_| ());
    Some((owed, old))
}

/// All others that shared the frame of `page` have gone: it is the page's own, to be written.
pub(crate) fn own<const BREAK: bool>(_: &Vm<BREAK>, host: &Host, page: u64) {
    let _changes = host.changes.lock().unwrap();
    if host.is_shared(page) {
        host.seal(host.pfn(page), false);
        host.set_shared(page, false);
    }
}

/// Has what is owed paid, and the frame put to other use.
pub(crate) fn pay((owed, old): (Owed, u64), host: &Host) {
    owed.pay();
    host.withdraw(&[old]);
}

/// Gives `page` a frame of its own, if it is shared.
pub(crate) fn unshare<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host, page: u64) {
    let _changes = host.changes.lock().unwrap();
    if !host.is_shared(page) {
        return;
    }
    let invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
    let (old, new) = host.move_page(page);
    host.seal(new, true);
    host.set_shared(page, false);
    replace(vm, host, &invalidation, page, old, new);
    // Only now, when nobody reads the old frame, may somebody write.
    host.seal(new, false);
    vm.stage2.allow_any_writes(&invalidation, gfn(page), Pfn::new(new));
}

fn replace<const BREAK: bool>(
    vm: &Vm<BREAK>,
    host: &Host,
    announcement: &Announcement,
    page: u64,
    old: u64,
    new: u64,
) {
    let with = Replacement { old: Pfn::new(old), new: Pfn::new(new), same_contents: true };
    vm.stage2.replace_any(announcement, gfns(page, 1), SHORT, |_| Some(with), |_| ());
    host.withdraw(&[old]);
}
