//! How long a guest takes to have on a new root what it needs.

use std::time::Instant;

use mayfly_platform::address::Pfn;
use mayfly_record::nanoseconds;

use crate::work::cpu_here;

/// From running on a new root until all pages that stay have been gone over without a fault. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refaulted {
    /// On the clock.
    pub(crate) wall: u64,
    /// Of its processor.
    pub(crate) cpu: u64,
}

/// A guest's way back to full speed, root by root.
#[derive(Debug)]
pub(crate) struct Refault {
    /// Pages that stay.
    stay: usize,
    top: Option<Pfn>,
    under_way: Option<UnderWay>,
    pub(crate) done: Vec<Refaulted>,
}

#[derive(Debug)]
struct UnderWay {
    start: Instant,
    cpu: u64,
    /// Pages that stay, which it has gone over since the last fault on one.
    clean: usize,
}

impl Refault {
    /// Of a guest with so many pages that stay, which are its first.
    pub(crate) fn of(stay: usize) -> Self {
        Self { stay, top: None, under_way: None, done: Vec::new() }
    }

    /// It runs on this root. The first is none that it had to come back to.
    pub(crate) fn enter(&mut self, top: Pfn) {
        if self.top.replace(top).is_some_and(|before| before != top) && self.stay > 0 {
            self.under_way = Some(UnderWay { start: Instant::now(), cpu: cpu_here(), clean: 0 });
        }
    }

    /// It has faulted on this page.
    pub(crate) fn fault(&mut self, page: usize) {
        if let Some(under_way) = self.under_way.as_mut().filter(|_| page < self.stay) {
            under_way.clean = 0;
        }
    }

    /// Whether it has all that it needs on the root that it runs on.
    pub(crate) fn is_over(&self) -> bool {
        self.under_way.is_none()
    }

    /// It is done with this page.
    pub(crate) fn reach(&mut self, page: usize) {
        let Some(under_way) = self.under_way.as_mut().filter(|_| page < self.stay) else { return };
        under_way.clean += 1;
        if under_way.clean == self.stay {
            let (wall, cpu) = (nanoseconds(under_way.start.elapsed()), cpu_here() - under_way.cpu);
            self.done.push(Refaulted { wall, cpu });
            self.under_way = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_speed_is_all_that_stays_without_a_fault_on_a_root_that_is_not_the_first() {
        let mut refault = Refault::of(2);
        let pass = |refault: &mut Refault| (0..3).for_each(|page| refault.reach(page));
        refault.enter(Pfn::new(7));
        pass(&mut refault);
        refault.enter(Pfn::new(7));
        pass(&mut refault);
        assert!(refault.done.is_empty());
        refault.enter(Pfn::new(8));
        refault.reach(1);
        refault.fault(0);
        refault.reach(0);
        // What is deleted is missing all the time.
        refault.fault(2);
        assert!(refault.done.is_empty() && !refault.is_over(), "one page since the fault");
        refault.reach(1);
        pass(&mut refault);
        assert!(refault.is_over());
        assert_eq!(refault.done.len(), 1);
        assert!(refault.done[0].cpu <= refault.done[0].wall + 1_000_000);
    }
}
