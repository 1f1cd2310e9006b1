//! Mayfly's tables.

use std::hint::black_box;
use std::sync::Arc;

use mayfly_machine::Hardware;
use mayfly_platform::Mmu;
use mayfly_platform::address::{Gfn, Gpa, Pfn};
use mayfly_srcu::{Reader, Srcu};
use mayfly_stage2::{
    Config, Format, Leaf, Level, Mapped, Permissions, Reclaimed, Reclaimer, Role, Root, RootRef,
    Slice, Stage2, Vmids,
};

use super::{BACKING, PAGES};
use crate::addresses::Addresses;
use crate::sections::reader;

const EVERYTHING: Permissions = Permissions::all();

/// A VM's tables, of one root.
pub struct Tables<F: Format> {
    stage2: Stage2<F>,
    reclaimer: Arc<Reclaimer<F>>,
    reader: Reader,
    root: Option<RootRef<F>>,
}

impl<F: Format> Tables<F> {
    /// Empty ones, of frames of `hardware`. Who walks them reads under `domain`.
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub fn new(hardware: &Arc<Hardware>, domain: &Srcu) -> Self {
        let mmu: Arc<dyn Mmu> = hardware.clone();
        // SAFETY: no guest is entered.
        let vmids = unsafe { Vmids::try_new(Arc::clone(&mmu), 16) }
            .expect("more numbers than CPUs, and little memory");
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&mmu), Reclaimer::<F>::BOUND));
        let config =
            Config { mmu, vmids, reclaimer: Arc::clone(&reclaimer), max_frames: usize::MAX };
        let stage2 = Stage2::try_new(config, domain).expect("no tables take little memory");
        let mut this = Self { stage2, reclaimer, reader: reader(domain), root: None };
        this.load_root();
        this
    }

    /// As `new`, with everything mapped.
    pub fn mapped(hardware: &Arc<Hardware>, domain: &Srcu) -> Self {
        let this = Self::new(hardware, domain);
        this.map_run();
        this
    }

    fn load_root(&mut self) {
        let section = self.reader.lock();
        self.root =
            Some(self.stage2.root(Role::MAIN, &section).expect("a root takes little memory"));
    }

    fn root(&self) -> &RootRef<F> {
        self.root.as_ref().expect("dropped only while it is replaced")
    }

    /// Maps the GiB at once.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    #[inline(never)]
    pub fn map_run(&self) {
        let section = self.reader.lock();
        let seen = self.stage2.sample();
        let leaf = Leaf::new(Pfn::new(BACKING), EVERYTHING);
        let gfns = Gfn::new(0)..Gfn::new(u64::from(PAGES));
        // SAFETY: no guest accesses the frames.
        let mapped = unsafe { self.root().map_run(gfns, Level::PAGE, &leaf, seen, &section) };
        assert_eq!(mapped, Ok(Mapped::Installed));
    }

    /// Maps the GiB page by page, each as a fault does: in a section of its own, the sequence sampled in it.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    #[inline(never)]
    pub fn map_pages(&self) {
        for number in 0..u64::from(PAGES) {
            let section = self.reader.lock();
            let seen = self.stage2.sample();
            let leaf = Leaf::new(Pfn::new(BACKING + number), EVERYTHING);
            let gfn = Gfn::new(number);
            // SAFETY: as above.
            let grant = unsafe { self.root().grant(gfn, Level::PAGE, leaf, seen, &section) };
            assert_eq!(grant.map(), Ok(Mapped::Installed));
        }
    }

    /// Gives every table back, and begins with an empty root.
    ///
    /// # Panics
    ///
    /// If the arena has no frame left.
    pub fn renew(&mut self) {
        self.root = None;
        self.stage2.replace_roots().expect("a root takes little memory").finish();
        while self.reclaimer.run_slice(Slice::default()) != Reclaimed::All {}
        self.load_root();
    }

    /// What `gfn` is mapped to.
    pub fn translation(&self, gfn: Gfn) -> Option<(Level, Leaf)> {
        let section = self.reader.lock();
        self.root().translate(gfn, &section)
    }

    /// `count` addresses translated, each in a section of its own.
    #[inline(never)]
    pub fn translate(&self, addresses: &Addresses, count: u32) {
        let root: &Root<F> = self.root();
        for address in addresses.take(count) {
            let section = self.reader.lock();
            black_box(root.translate(Gpa::new(address).gfn(), &section));
        }
    }

    /// `count` addresses translated, all in one section.
    #[inline(never)]
    pub fn translate_in_one_section(&self, addresses: &Addresses, count: u32) {
        let root: &Root<F> = self.root();
        let section = self.reader.lock();
        for address in addresses.take(count) {
            black_box(root.translate(Gpa::new(address).gfn(), &section));
        }
    }
}
