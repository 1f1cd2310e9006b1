//! Random operations, in every format, against the naive map.

use std::collections::BTreeSet;
use std::ops::Range;

use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_platform::tlb::{Scope, Vmid};
use mayfly_stage2::{
    Arm, ArmFwb, Ept, Format, Leaf, Level, Mapped, MemoryType, Npt, Permissions, Reclaimed,
    Replacement, Sv39x4, Sv48x4, Tables,
};
use proptest::prelude::*;

use crate::common::granted::{MapsAny, ReplacesAny};
use crate::common::{Vcpu, World};
use crate::model::Model;
use crate::{entries, gfns};

const ROLES: u8 = 2;
const LEVELS: [Level; 3] = [Level::PAGE, Level::MIB2, Level::GIB1];

/// A place that means something in every format: a GiB (of the first, those around the middle of the root, and the
/// last), a 2 MiB in it, a page in that.
#[derive(Clone, Copy, Debug)]
struct Place {
    gib: usize,
    mib2: u64,
    page: u64,
}

impl Place {
    fn gfn<F: Format>(self) -> u64 {
        let gibs = limit::<F>() >> 18;
        let gib = [0, 1, gibs / 2 - 1, gibs / 2, gibs - 2, gibs - 1][self.gib];
        gib << 18 | self.mib2 << 9 | self.page
    }
}

fn limit<F: Format>() -> u64 {
    1 << (F::IPA_BITS - PAGE_SHIFT)
}

#[derive(Clone, Debug)]
enum Step {
    Map { role: u8, place: Place, level: usize, what: What },
    MapRun { role: u8, place: Place, level: usize, count: u64, what: What },
    Zap { range: Between, free: bool, slice: u32 },
    ZapEach { range: Between, slice: u32 },
    WriteProtect { range: Between, slice: u32 },
    Age { range: Between, slice: u32 },
    Replace { place: Place, old: u64, new: u64, same_contents: bool },
    AllowWrites { place: Place, distance: u64 },
    ReplaceRoots,
}

#[derive(Clone, Copy, Debug)]
struct What {
    /// How far the host frames are from the guest's, in GiB. Mostly the same, so that mappings meet what they would
    /// map.
    distance: u64,
    permissions: Permissions,
    memory: MemoryType,
    accessed: bool,
}

impl What {
    fn leaf(self, gfn: u64) -> Leaf {
        Leaf {
            pfn: Pfn::new(gfn ^ self.distance << 18),
            permissions: self.permissions,
            memory: self.memory,
            accessed: self.accessed,
            dirty: false,
            written: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Between {
    from: Place,
    to: Place,
    beyond: bool,
}

impl Between {
    fn range<F: Format>(self) -> Range<u64> {
        let (a, b) = (self.from.gfn::<F>(), self.to.gfn::<F>());
        let end = if self.beyond { u64::MAX } else { a.max(b) };
        a.min(b)..end
    }
}

fn places() -> impl Strategy<Value = Place> {
    let index = || prop_oneof![Just(0_u64), Just(1), Just(2), Just(510), Just(511)];
    (0_usize..6, index(), index()).prop_map(|(gib, mib2, page)| Place { gib, mib2, page })
}

fn distances() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0_u64), 1 => Just(1), 1 => Just(3)]
}

fn whats() -> impl Strategy<Value = What> {
    let distance = distances();
    let permissions = prop_oneof![
        3 => Just(Permissions::all()),
        1 => Just(Permissions::READ),
        1 => Just(Permissions::READ | Permissions::WRITE),
        1 => Just(Permissions::READ | Permissions::EXECUTE),
    ];
    let memory = prop_oneof![
        6 => Just(MemoryType::WriteBack),
        1 => Just(MemoryType::Uncached),
        1 => Just(MemoryType::Device),
    ];
    (distance, permissions, memory, prop::bool::weighted(0.9)).prop_map(
        |(distance, permissions, memory, accessed)| What {
            distance,
            permissions,
            memory,
            accessed,
        },
    )
}

fn ranges() -> impl Strategy<Value = Between> {
    let near = (places(), 0_u64..512, 0_u64..512).prop_map(|(from, mib2, page)| {
        let to = Place { gib: from.gib, mib2, page };
        Between { from, to, beyond: false }
    });
    let far = (places(), places(), prop::bool::weighted(0.3));
    let far = far.prop_map(|(from, to, beyond)| Between { from, to, beyond });
    prop_oneof![2 => near, 1 => far]
}

fn steps() -> impl Strategy<Value = Step> {
    let slice = || prop_oneof![Just(1_u32), Just(2), Just(5), Just(64), Just(600), Just(1 << 16)];
    prop_oneof![
        6 => (0..ROLES, places(), 0_usize..3, whats())
            .prop_map(|(role, place, level, what)| Step::Map { role, place, level, what }),
        3 => (0..ROLES, places(), 0_usize..2, 1_u64..1100, whats()).prop_map(
            |(role, place, level, count, what)| Step::MapRun { role, place, level, count, what }
        ),
        3 => (ranges(), any::<bool>(), slice())
            .prop_map(|(range, free, slice)| Step::Zap { range, free, slice }),
        1 => (ranges(), slice()).prop_map(|(range, slice)| Step::ZapEach { range, slice }),
        1 => (ranges(), slice()).prop_map(|(range, slice)| Step::WriteProtect { range, slice }),
        1 => (ranges(), slice()).prop_map(|(range, slice)| Step::Age { range, slice }),
        3 => (places(), distances(), distances(), prop::bool::weighted(0.8)).prop_map(
            |(place, old, new, same_contents)| Step::Replace { place, old, new, same_contents }
        ),
        2 => (places(), distances())
            .prop_map(|(place, distance)| Step::AllowWrites { place, distance }),
        1 => Just(Step::ReplaceRoots),
    ]
}

/// The tables, the naive map beside them, and what was looked at so far.
struct Run<F: Format> {
    world: World<F>,
    vcpus: Vec<Vcpu<F>>,
    models: Vec<Model>,
    probes: BTreeSet<u64>,
}

impl<F: Format> Run<F> {
    fn new() -> Self {
        let world = World::new(1000);
        let vcpus = (0..ROLES).map(|role| world.vcpu(role)).collect();
        let models = (0..ROLES).map(|_| Model::default()).collect();
        let probes = BTreeSet::from([0, 1, limit::<F>() - 1]);
        Self { world, vcpus, models, probes }
    }

    fn run(steps: &[Step]) {
        let mut run = Self::new();
        for step in steps {
            run.walk();
            run.step(step);
            run.agree();
        }
        run.end();
    }

    fn probe(&mut self, range: &Range<u64>) {
        for level in LEVELS {
            for at in [range.start, range.end] {
                let first = at & !(level.pages() - 1);
                let around = [first.wrapping_sub(1), first, first + 1, first + level.pages()];
                self.probes.extend(around.into_iter().filter(|gfn| *gfn < limit::<F>()));
            }
        }
        self.probes.extend([range.start, range.end - 1].map(|gfn| gfn.min(limit::<F>() - 1)));
    }

    /// Has the TLB remember everything that it could.
    fn walk(&self) {
        let section = self.world.srcu.read_lock();
        for vcpu in &self.vcpus {
            for gfn in self.probes.iter().copied().map(Gfn::new) {
                if let Some((level, leaf)) = vcpu.root.translate(gfn, &section)
                    && (leaf.accessed || F::SETS_ACCESSED)
                {
                    self.world.platform.tlbs.walk(vcpu.vmid, gfn, level, &leaf);
                }
            }
        }
    }

    /// A fault. Whose TLB lacks a right that is mapped now, and would go on without it, is told so.
    fn map(&mut self, role: u8, place: Place, level: Level, what: What) {
        let gfn = place.gfn::<F>();
        let first = gfn & !(level.pages() - 1);
        let leaf = what.leaf(first);
        let (vcpu, model) = (&self.vcpus[role as usize], &mut self.models[role as usize]);
        let section = self.world.srcu.read_lock();
        let before = vcpu.root.translate(Gfn::new(gfn), &section);
        let mapped =
            vcpu.root.map(Gfn::new(gfn), level, &leaf, self.world.stage2.sample(), &section);
        let is_relaxed = mapped == Ok(Mapped::Relaxed);
        let plain = if is_relaxed { Ok(Mapped::Installed) } else { mapped };
        assert_eq!(plain, Ok(model.map(gfn, level, &leaf)));
        let remembered = self.world.platform.tlbs.remembered();
        let remembered = remembered.get(&(vcpu.vmid, Gfn::new(gfn)));
        let lacks = remembered.is_some_and(|it| !it.permissions.contains(leaf.permissions));
        if before.is_some_and(|(_, leaf)| leaf.accessed) && plain == Ok(Mapped::Installed) {
            assert!(is_relaxed || !lacks || !F::KEEPS_FAULTING, "{remembered:?}");
        }
        drop(section);
        self.probe(&(first..first + level.pages()));
    }

    fn step(&mut self, step: &Step) {
        let stage2 = &self.world.stage2;
        match *step {
            Step::Map { role, place, level, what } => self.map(role, place, LEVELS[level], what),
            Step::MapRun { role, place, level, count, what } => {
                let level = LEVELS[level];
                let first = place.gfn::<F>() & !(level.pages() - 1);
                let leaf = what.leaf(first);
                let frames = (1 << F::PFN_BITS) - leaf.pfn.get();
                let count = (count * level.pages()).min(limit::<F>() - first).min(frames);
                let range = first..first + count;
                let (vcpu, model) = (&self.vcpus[role as usize], &mut self.models[role as usize]);
                let section = self.world.srcu.read_lock();
                let seen = stage2.sample();
                let mapped =
                    vcpu.root.map_any_run(gfns(range.clone()), level, &leaf, seen, &section);
                assert_eq!(mapped, Ok(Mapped::Installed));
                for gfn in range.clone().step_by(level.pages() as usize) {
                    let pfn = Pfn::new(leaf.pfn.get() + (gfn - first));
                    model.map(gfn, level, &Leaf { pfn, ..leaf });
                }
                drop(section);
                self.probe(&range);
            }
            Step::Zap { range, free, slice } => {
                let range = range.range::<F>();
                let tables = if free { Tables::Free } else { Tables::Keep };
                let announced = stage2.begin_invalidation(&gfns(range.clone()));
                stage2.zap(&announced, gfns(range.clone()), tables, entries(slice));
                drop(announced);
                for model in &mut self.models {
                    model.zap(&range);
                }
                self.probe_range(&range);
            }
            Step::ZapEach { range, slice } => {
                let range = range.range::<F>();
                let mut zapped = Vec::new();
                let announced = stage2.begin_invalidation(&gfns(range.clone()));
                stage2.zap_each(
                    &announced,
                    gfns(range.clone()),
                    entries(slice),
                    |gfn, level, leaf| {
                        zapped.push((gfn.get(), level, Leaf { dirty: false, ..leaf }));
                    },
                );
                drop(announced);
                let expected: Vec<_> = self.models.iter_mut().flat_map(|m| m.zap(&range)).collect();
                assert_eq!(zapped, expected);
                self.probe_range(&range);
            }
            Step::WriteProtect { range, slice } => {
                let range = range.range::<F>();
                let mut were = Vec::new();
                let each = |gfn: Gfn, pages| were.push((gfn.get(), pages));
                stage2.write_protect(gfns(range.clone()), entries(slice), each);
                let models = self.models.iter_mut();
                assert_eq!(were, models.flat_map(|m| m.write_protect(&range)).collect::<Vec<_>>());
                self.probe_range(&range);
            }
            Step::Age { range, slice } => {
                let range = range.range::<F>();
                let mut were = Vec::new();
                let each = |gfn: Gfn, pages| were.push((gfn.get(), pages));
                stage2.age(gfns(range.clone()), entries(slice), each);
                let models = self.models.iter_mut();
                assert_eq!(were, models.flat_map(|m| m.age(&range)).collect::<Vec<_>>());
                self.probe_range(&range);
            }
            Step::Replace { place, old, new, same_contents } => {
                let gfn = place.gfn::<F>();
                let [old, new] = [old, new].map(|distance| Pfn::new(gfn ^ distance << 18));
                self.replace(gfn, Replacement { old, new, same_contents });
            }
            Step::AllowWrites { place, distance } => {
                let gfn = place.gfn::<F>();
                self.allow_writes(gfn, Pfn::new(gfn ^ distance << 18));
            }
            Step::ReplaceRoots => {
                let retiring = stage2.replace_roots().unwrap();
                let old: Vec<_> = self.vcpus.iter().map(|vcpu| vcpu.vmid).collect();
                for (role, vcpu) in (0..).zip(&mut self.vcpus) {
                    vcpu.load(self.world.root(role));
                }
                self.world.platform.tlbs.take_issued();
                retiring.finish();
                assert_eq!(self.world.platform.tlbs.take_issued(), []);
                self.models = (0..ROLES).map(|_| Model::default()).collect();
                self.reclaim(&old);
            }
        }
    }

    fn replace(&mut self, gfn: u64, with: Replacement) {
        let (stage2, page) = (&self.world.stage2, gfns(gfn..gfn + 1));
        let announced = stage2.begin_invalidation(&page);
        stage2.replace_any(&announced, page, entries(1), |_| Some(with), |_| ());
        drop(announced);
        for model in &mut self.models {
            model.replace(gfn, &with);
        }
        self.probe(&(gfn..gfn + 1));
    }

    fn allow_writes(&mut self, gfn: u64, pfn: Pfn) {
        let stage2 = &self.world.stage2;
        let announced = stage2.begin_invalidation(&gfns(gfn..gfn + 1));
        stage2.allow_any_writes(&announced, Gfn::new(gfn), pfn);
        drop(announced);
        for model in &mut self.models {
            model.allow_writes(gfn, pfn);
        }
        self.probe(&(gfn..gfn + 1));
    }

    fn probe_range(&mut self, range: &Range<u64>) {
        if !range.is_empty() {
            self.probe(&(range.start..range.end.min(limit::<F>())));
        }
    }

    /// Reclaims roots whose VMIDs were `old`, and asserts that each is invalidated once.
    fn reclaim(&self, old: &[Vmid]) {
        self.world.platform.tlbs.take_issued();
        while self.world.reclaimer.run_slice(entries(3)) != Reclaimed::All {}
        let mut issued = self.world.platform.tlbs.take_issued();
        issued.sort_by_key(|(vmid, _)| *vmid);
        let mut expected: Vec<_> = old.iter().map(|vmid| (*vmid, Scope::All)).collect();
        expected.sort_by_key(|(vmid, _)| *vmid);
        assert_eq!(issued, expected);
    }

    /// What is mapped is what the naive map says, and TLBs remember nothing else.
    fn agree(&self) {
        let section = self.world.srcu.read_lock();
        let remembered = self.world.platform.tlbs.remembered();
        for (vcpu, model) in self.vcpus.iter().zip(&self.models) {
            for gfn in &self.probes {
                let found = vcpu.root.translate(Gfn::new(*gfn), &section);
                let found = found.map(|(level, leaf)| (level, Leaf { dirty: false, ..leaf }));
                assert_eq!(found, model.translate(*gfn), "frame {gfn:#x}");
                if let Some(old) = remembered.get(&(vcpu.vmid, Gfn::new(*gfn))) {
                    let (level, leaf) = found.unwrap_or_else(|| panic!("{gfn:#x} is remembered"));
                    old.assert_covered_by(Gfn::new(*gfn), level, &leaf);
                }
            }
        }
        assert_eq!(self.world.stage2.frames(), self.world.live());
    }

    fn end(mut self) {
        let section = self.world.srcu.read_lock();
        for (vcpu, model) in self.vcpus.iter().zip(&self.models) {
            for gfn in model.starts() {
                let found = vcpu.root.translate(Gfn::new(gfn), &section);
                let found = found.map(|(level, leaf)| (level, Leaf { dirty: false, ..leaf }));
                assert_eq!(found, model.translate(gfn), "frame {gfn:#x}");
            }
        }
        drop(section);
        let vmids: Vec<_> = self.vcpus.drain(..).map(|vcpu| vcpu.vmid).collect();
        self.world.stage2.retire();
        self.reclaim(&vmids);
        assert!(self.world.platform.tlbs.remembered().is_empty());
        self.world.destroy();
    }
}

macro_rules! agrees_with_the_naive_map {
    ($($name:ident: $format:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig {
                failure_persistence: None,
                ..ProptestConfig::with_cases(24)
            })]
            $(
                #[test]
                fn $name(steps in prop::collection::vec(steps(), 1..40)) {
                    Run::<$format>::run(&steps);
                }
            )*
        }
    };
}

agrees_with_the_naive_map! {
    arm_with_32_bits_agrees_with_the_naive_map: Arm<32>;
    arm_with_40_bits_agrees_with_the_naive_map: Arm<40>;
    arm_with_16_root_tables_agrees_with_the_naive_map: Arm<43>;
    arm_with_fwb_agrees_with_the_naive_map: ArmFwb<44>;
    arm_with_48_bits_agrees_with_the_naive_map: Arm<48>;
    ept_agrees_with_the_naive_map: Ept;
    npt_agrees_with_the_naive_map: Npt;
    sv39x4_agrees_with_the_naive_map: Sv39x4;
    sv48x4_agrees_with_the_naive_map: Sv48x4;
}
