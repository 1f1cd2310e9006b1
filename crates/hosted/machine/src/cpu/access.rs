//! An access to memory: translated, and made as the guest reaches memory.

use mayfly_memslot::PAGE_SIZE;
use mayfly_platform::address::Hpa;
use mayfly_stage2::{Format, Permissions};
use mayfly_vm::{Access, AccessKind, Event};

use crate::Arena;
use crate::reach::Reach;
use crate::tlb::{InGuest, Translated};
use crate::walk::{Cause, WalkFault};

/// Bytes of an access to memory.
pub(super) const WORD: u64 = 8;

/// What a guest comes out with ([`Event::Custom`]) when a walk is led past the processor's physical addresses
/// ([`Processors::pa_bits`](crate::Processors::pa_bits)): an entry is wrong, and no fault handler can resolve that.
pub const ADDRESS_SIZE_FAULT: u64 = 0xadd_5125;

/// Makes `access`, if the translation allows it. Returns where its first byte is, and how the guest reaches it; or what
/// comes out: the access as far as it lies in the page that faulted, or that the tables are wrong.
pub(super) fn perform<'a, F: Format>(
    access: Access,
    bytes: &mut [u8],
    guest: &mut InGuest<'_>,
    arena: &Arena,
    reach: Reach<'a>,
) -> Result<(Reach<'a>, Hpa), Event> {
    let Access { gpa, len, write, .. } = access;
    let needed = access.wanted();
    let mut place = |access: Access| {
        let found = guest.translate::<F>(arena, access.gpa.gfn(), needed);
        let event = |fault: WalkFault| match fault.cause {
            Cause::AddressSize => Event::Custom(ADDRESS_SIZE_FAULT),
            cause => Event::Access(Access { denied: cause == Cause::Permission, ..access }),
        };
        let met = |found: Translated<'_>| (found.hpa(access.gpa), found.leaf);
        found.map(met).map_err(event)
    };
    let (hpa, leaf) = place(access)?;
    let here = (reach.of(leaf.memory), hpa);
    let in_page = (PAGE_SIZE - gpa.page_offset()).min(len);
    let beyond = match gpa.checked_add(in_page).filter(|_| in_page < len) {
        // Nothing is done before both pages are there.
        Some(gpa) => {
            let (hpa, leaf) =
                place(Access { gpa, len: len - in_page, kind: AccessKind::Opaque, ..access })?;
            guest.record(gpa.gfn(), hpa.pfn(), write, || ());
            (reach.of(leaf.memory), hpa)
        }
        None => here,
    };
    if let Some(oracle) = arena.oracle()
        && leaf.permissions.contains(Permissions::EXECUTE)
    {
        oracle.look_ahead(arena.memory(), guest.cpu(), gpa.gfn(), hpa.pfn());
    }
    guest.record(gpa.gfn(), hpa.pfn(), write, || match arena.oracle() {
        Some(oracle) if access.kind == AccessKind::Fetch => {
            let word = oracle.fetch(arena.memory(), guest.cpu(), gpa.gfn(), hpa);
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        _ => transfer(bytes, write, in_page, [here, beyond]),
    });
    Ok(here)
}

/// Reads or writes `bytes`: `in_page` of them at the first place, the others at the second, each as it is reached.
fn transfer(
    bytes: &mut [u8],
    write: bool,
    in_page: u64,
    [(reach, hpa), (reach_beyond, beyond)]: [(Reach<'_>, Hpa); 2],
) {
    if let (Ok(word), true) = (<[u8; 8]>::try_from(&*bytes), hpa.get().is_multiple_of(WORD)) {
        if write {
            reach.store(hpa, u64::from_le_bytes(word));
        } else {
            bytes.copy_from_slice(&reach.load(hpa).to_le_bytes());
        }
        return;
    }
    for (offset, byte) in (0..).zip(bytes) {
        let (reach, there) = if offset < in_page {
            (reach, hpa.get() + offset)
        } else {
            (reach_beyond, beyond.get() + offset - in_page)
        };
        if write {
            reach.store_byte(Hpa::new(there), *byte);
        } else {
            *byte = reach.load_byte(Hpa::new(there));
        }
    }
}
