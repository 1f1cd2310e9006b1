//! A VM whose memory goes back to what it was once.

use core::ops::Range;

use mayfly_memslot::Gfn;
use mayfly_stage2::Invalidation;

use crate::World;
use crate::vm::Vm;

impl<W: World> Vm<W> {
    /// The host takes back pages of the `bytes` bytes of its memory from `from` on: those that `next` leads to, which
    /// says which pages are next to go, from some page on: of those that follow each other, the first and the one behind
    /// the last. If there are none, it names some behind the last page. Pages are counted from `from`.
    ///
    /// When this returns, no CPU uses what the VM had mapped of these pages, and what was written to them past the caches
    /// is in memory. Nor does a CPU remember anything of the guest's own tables, which may be among them. All other pages
    /// stay mapped, and are not visited. No fault maps anything of the whole range until what this returns is dropped:
    /// which the host does when the pages are what they are from now on.
    ///
    /// The vCPUs are out of the guest, if it is to go on with the registers that it had when memory was like that.
    pub fn invalidate_picked(
        &self,
        from: W::Backing,
        bytes: u64,
        next: impl Fn(u64) -> Range<u64>,
    ) -> Invalidation<'_> {
        let vm = self.inner();
        let invalidation = vm.stage2.begin_invalidation_of(|announce| {
            vm.for_each_place(from, bytes, |place| announce(place.gfns));
        });
        vm.for_each_place(from, bytes, |place| {
            let first = place.page(place.gfns.start);
            let gfn_of = |page: u64| {
                let into = page.saturating_sub(first);
                Gfn::new(place.gfns.start.get().saturating_add(into))
            };
            let next_gfns = |gfn: Gfn| {
                let Range { start, end } = next(place.page(gfn.max(place.gfns.start)));
                gfn_of(start)..gfn_of(end)
            };
            let meant = |gfns: Range<Gfn>| {
                let next = next_gfns(gfns.start);
                next.start < gfns.end && next.start < next.end
            };
            vm.flush_written_those(place.gfns.clone(), meant);
            vm.stage2.zap_picked(&invalidation, place.gfns.clone(), vm.slice, next_gfns);
        });
        invalidation
    }
}
