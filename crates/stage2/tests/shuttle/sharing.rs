//! Pages that are shared, and get frames of their own again: what a page merger and a copy-on-write do, in the order of
//! their notifications.

use mayfly_platform::address::Pfn;
use mayfly_stage2::Replacement;

use crate::host::Host;
use crate::model::{gfn, gfns};
use crate::{SHORT, Vm};

/// Puts `page` into a shared frame of the same contents.
pub(crate) fn merge<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host, page: u64) {
    let _changes = host.changes.lock().unwrap();
    if host.is_shared(page) {
        return;
    }
    let _invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
    vm.stage2.write_protect(gfns(page, 1), SHORT, |_, _| ());
    host.seal(host.pfn(page), true);
    let (old, new) = host.move_page(page);
    host.seal(new, true);
    host.set_shared(page, true);
    replace(vm, host, page, old, new);
}

/// Gives `page` a frame of its own, if it is shared.
pub(crate) fn unshare<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host, page: u64) {
    let _changes = host.changes.lock().unwrap();
    if !host.is_shared(page) {
        return;
    }
    let _invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
    let (old, new) = host.move_page(page);
    host.seal(new, true);
    host.set_shared(page, false);
    replace(vm, host, page, old, new);
    // Only now, when nobody reads the old frame, may somebody write.
    host.seal(new, false);
    vm.stage2.allow_writes(gfn(page), Pfn::new(new));
}

fn replace<const BREAK: bool>(vm: &Vm<BREAK>, host: &Host, page: u64, old: u64, new: u64) {
    let with = Replacement { old: Pfn::new(old), new: Pfn::new(new), same_contents: true };
    vm.stage2.replace(gfns(page, 1), SHORT, |_| Some(with), |_| ());
    host.withdraw(&[old]);
}
