//! What the account of the machine's memory promises, held against a naive model: one that keeps nothing but the list
//! of pieces that are given, and adds everything up anew whenever it is asked. The heap is that of [`heap`].

mod heap;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use heap::Heap;
use mayfly_frames::{FrameInfo, Span, Spans};
use mayfly_hypervisor::account::{Account, Refused, ShareId, ShareInfo};
use mayfly_hypervisor::chunks::{Books, CHUNK, ChunkInfo, Chunks, NO_ROOM, chunks};
use mayfly_hypervisor::ending::{End, Ending};
use mayfly_hypervisor::shortage::{Asker, Next};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The first frame of the machine, and how many chunks it has room for.
const BASE: u64 = 0x4_0120;
const CHUNKS: u64 = 160;
/// Shares that there is room for, beside the hypervisor's own.
const SHARES: usize = 6;

/// Pieces of a share, by their orders: single frames, roots of stage 2, and larger ones.
const CLASSES: [usize; 3] = [0, 1, 3];
type Pieces = [u64; CLASSES.len()];

/// What a VM is guaranteed, and the most that it asks for.
#[derive(Clone, Copy, Debug)]
struct Wants {
    guaranteed: Pieces,
    /// Single frames that it asks for beyond them.
    beyond: u64,
    /// Bytes that it takes of the heap.
    heap: usize,
}

impl Wants {
    fn guarantee(&self) -> u64 {
        CLASSES.iter().zip(self.guaranteed).map(|(&order, count)| chunks(count, order as u32)).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Admitted,
    Active,
    Leaving,
}

/// A VM of the model.
#[derive(Debug)]
struct Vm {
    wants: Wants,
    state: State,
    /// The pieces that it has, and their orders.
    pieces: BTreeMap<u64, usize>,
    /// The most single frames that it had at a time.
    most: u64,
    heap: heap::Pieces,
}

impl Vm {
    fn count(&self, order: usize) -> u64 {
        self.pieces.values().filter(|&&other| other == order).count() as u64
    }

    /// How many chunks its pieces lie in.
    fn used(&self) -> u64 {
        used(&self.pieces)
    }

    fn above(&self) -> u64 {
        self.used().saturating_sub(self.wants.guarantee())
    }

    fn owed(&self) -> u64 {
        match self.state {
            State::Active => self.wants.guarantee().saturating_sub(self.used()),
            _ => 0,
        }
    }

    fn promised(&self) -> u64 {
        match self.state {
            State::Leaving => self.wants.guarantee().min(self.used()),
            _ => self.wants.guarantee(),
        }
    }

    /// Frames in blocks.
    fn in_blocks(&self) -> u64 {
        self.pieces.values().filter(|&&order| order >= 4).map(|order| 1 << order).sum()
    }

    /// Whether it is within what it said that it needs, with a piece of `order` more. A block stands for as many single
    /// frames, beside the most that it ever had.
    fn is_within(&self, order: usize) -> bool {
        let [frames, roots, larger] = self.wants.guaranteed;
        let more = |class: usize| u64::from(order == class);
        let singles = self.most.max(self.count(0) + more(0));
        let blocks = self.in_blocks() + if order >= 4 { 1 << order } else { 0 };
        singles + blocks <= frames
            && self.count(1) + more(1) <= roots
            && self.count(3) + more(3) <= larger
    }

    fn insert(&mut self, first: u64, order: usize) {
        self.pieces.insert(first, order);
        self.most = self.most.max(self.count(0));
    }

    /// Whether a chunk of it has room for a piece.
    fn has_room(&self, order: usize) -> bool {
        self.count(order) < used_by(&self.pieces, order) * (CHUNK >> order)
    }
}

fn used(pieces: &BTreeMap<u64, usize>) -> u64 {
    let chunks =
        |(&first, &order): (&u64, &usize)| first / CHUNK..(first + (1 << order)).div_ceil(CHUNK);
    pieces.iter().flat_map(chunks).collect::<BTreeSet<u64>>().len() as u64
}

fn used_by(pieces: &BTreeMap<u64, usize>, order: usize) -> u64 {
    let of_order = pieces.iter().filter(|piece| *piece.1 == order).map(|(first, _)| first / CHUNK);
    of_order.collect::<BTreeSet<u64>>().len() as u64
}

/// The real frames, and the model beside them.
struct Machine<'a> {
    real: Chunks<'a>,
    heap: Heap,
    /// What the hypervisor has of it.
    own_heap: heap::Pieces,
    vms: Vec<(ShareId, Vm)>,
    system: BTreeMap<u64, usize>,
    /// The VM that is being ended.
    chosen: Option<ShareId>,
    /// Frames that are not given.
    memory: BTreeSet<u64>,
    total: u64,
}

impl Machine<'_> {
    fn free(&self) -> u64 {
        self.total - used(&self.system) - self.vms.iter().map(|(_, vm)| vm.used()).sum::<u64>()
    }

    fn left(&self) -> u64 {
        self.total - used(&self.system) - self.vms.iter().map(|(_, vm)| vm.promised()).sum::<u64>()
    }

    fn owed(&self) -> u64 {
        self.vms.iter().map(|(_, vm)| vm.owed()).sum()
    }

    fn awaited(&self) -> u64 {
        let admitted = self.vms.iter().filter(|(_, vm)| vm.state == State::Admitted);
        admitted.map(|(_, vm)| vm.wants.guarantee()).sum()
    }

    fn admit(&mut self, wants: Wants) {
        let (wanted, left) = (wants.guarantee(), self.left());
        let Some(mut heap) = self.heap.admit(wants.heap) else { return };
        match self.real.admit(wanted) {
            Ok(id) => {
                assert!(wanted <= left && self.vms.len() < SHARES);
                assert!(self.vms.iter().all(|(other, _)| *other != id) && id != ShareId::SYSTEM);
                let state = State::Admitted;
                self.vms.push((id, Vm { wants, state, pieces: BTreeMap::new(), most: 0, heap }));
                return;
            }
            Err(Refused::Guarantee { wanted: said, left: said_left }) => {
                assert!(wanted > left, "a guarantee of {wanted} was refused, and {left} are left");
                assert_eq!((said, said_left), (wanted, left));
            }
            Err(Refused::TooMany) => assert_eq!(self.vms.len(), SHARES),
        }
        self.heap.leave(&mut heap);
    }

    /// A VM, or the hypervisor, does something with the heap. Whatever others have, it gets what it is guaranteed.
    fn heap(&mut self, which: Option<Index>, what: HeapStep) {
        let at = which.and_then(|which| self.at(which));
        let pieces = at.map_or(&mut self.own_heap, |at| &mut self.vms[at].1.heap);
        let count = Heap::count(pieces);
        match what {
            HeapStep::Take(bytes, times) => (0..times).for_each(|_| self.heap.take(pieces, bytes)),
            HeapStep::Fill(bytes) => self.heap.fill(pieces, bytes),
            HeapStep::Thin => self.heap.thin(pieces),
            HeapStep::Free(piece) if count > 0 => self.heap.give_back(pieces, piece.index(count)),
            HeapStep::Free(_) => {}
        }
    }

    fn activate(&mut self, which: Index) {
        let Some(at) = self.at(which) else { return };
        let can = match self.vms[at].1.state {
            State::Active => true,
            State::Leaving => false,
            State::Admitted => self.owed() + self.vms[at].1.wants.guarantee() <= self.free(),
        };
        assert_eq!(self.real.activate(self.vms[at].0), can);
        if can {
            self.vms[at].1.state = State::Active;
        }
    }

    /// A VM asks. Where it gets nothing, the one that is furthest above its guarantee is ended, unless the one that asks
    /// is itself `ending`.
    fn ask(&mut self, which: Index, order: usize, ending: bool) {
        let Some(at) = self.at(which) else { return };
        let (id, vm) = &self.vms[at];
        let (id, is_active) = (*id, vm.state == State::Active);
        // Beyond what it is guaranteed, it asks for single frames.
        let within = vm.is_within(order);
        let has_all = vm.count(0) + vm.in_blocks() >= vm.wants.guaranteed[0] + vm.wants.beyond;
        if !within && (order != 0 || has_all) {
            return;
        }
        let units = if order >= 4 { 1 << (order - 4) } else { 1 };
        let borrows = vm.used() + units > vm.wants.guarantee();
        let free = self.free() >= units + self.owed() - vm.owed() + self.awaited();
        // What a chunk has room for costs nothing, even while its share is leaving.
        let expected = order < 4 && vm.has_room(order) || is_active && (!borrows || free);
        let given = self.real.allocate(id, order);
        assert!(given.is_none() || expected, "given where it could not be");
        if let Some(first) = given {
            self.given(first, order);
            return self.vms[at].1.insert(first, order);
        }
        // Of a block, there may be none in one piece.
        if order < 4 {
            assert!(!(is_active && within), "a VM within its guarantee got nothing");
            assert!(!expected, "not given what is free");
            if order == 0 && ending {
                // Those that are asked later are chosen as if it had not asked.
                assert_eq!(self.next(id, true), Next::Over);
            } else if is_active && order == 0 {
                self.end_for(id, at);
            }
        }
    }

    fn next(&mut self, share: ShareId, is_ending: bool) -> Next {
        Asker { share, was_chosen: false, is_ending }.next(&mut self.real)
    }

    fn end_for(&mut self, id: ShareId, at: usize) {
        let above = |(other, vm): &(ShareId, Vm)| {
            let more = u64::from(*other == id);
            (vm.used() + more).saturating_sub(vm.wants.guarantee())
        };
        let most = self.vms.iter().map(above).max().unwrap_or(0);
        let Next::Wait(Some(ended)) = self.next(id, false) else {
            panic!("none is above its guarantee")
        };
        if self.chosen.is_some() {
            // What that one has may be enough.
            return assert_eq!(self.chosen, Some(ended));
        }
        assert!(most > 0, "memory has ended, and none has borrowed");
        let found = self.vms.iter().position(|(other, _)| *other == ended).unwrap();
        assert_eq!(above(&self.vms[found]), most);
        let asks = above(&self.vms[at]);
        assert!(ended == id || asks < most, "another is ended in place of the one that asks");
        self.chosen = Some(ended);
        self.leave(found);
    }

    fn leave(&mut self, at: usize) {
        self.real.leave(self.vms[at].0);
        self.heap.leave(&mut self.vms[at].1.heap);
        self.vms[at].1.state = State::Leaving;
        self.forget();
    }

    fn give_back(&mut self, which: Index, piece: Index) {
        let Some(at) = self.at(which) else { return };
        let pieces = &self.vms[at].1.pieces;
        if pieces.is_empty() {
            return;
        }
        let (&first, &order) = pieces.iter().nth(piece.index(pieces.len())).unwrap();
        self.free_piece(first, order);
        self.vms[at].1.pieces.remove(&first);
        self.forget();
    }

    /// A block of a VM becomes single frames.
    fn part(&mut self, which: Index, piece: Index) {
        let Some(at) = self.at(which) else { return };
        let vm = &mut self.vms[at].1;
        let blocks = vm.pieces.iter().filter(|(_, order)| **order >= 4);
        let blocks: Vec<(u64, usize)> = blocks.map(|(&first, &order)| (first, order)).collect();
        if blocks.is_empty() {
            return;
        }
        let (first, order) = blocks[piece.index(blocks.len())];
        assert!(!self.real.part(first, order + 1) && !self.real.part(first + 1, order));
        assert!(self.real.part(first, order) && !self.real.part(first, order));
        vm.pieces.remove(&first);
        vm.pieces.extend((first..first + (1 << order)).map(|frame| (frame, 0)));
        // Its chunks are full, and those of other single frames have as much room as before.
        vm.most += 1 << order;
    }

    /// A share that is leaving is gone when it has nothing.
    fn forget(&mut self) {
        self.vms.retain(|(_, vm)| vm.state != State::Leaving || !vm.pieces.is_empty());
        self.chosen = self.chosen.filter(|id| self.vms.iter().any(|(other, _)| other == id));
    }

    fn system(&mut self, order: usize) {
        let units = if order >= 4 { 1 << (order - 4) } else { 1 };
        let has_room = order < 4
            && used_by(&self.system, order) * (CHUNK >> order)
                > self.system.values().filter(|&&other| other == order).count() as u64;
        let free = self.free() >= units + self.owed() + self.awaited();
        match self.real.allocate(ShareId::SYSTEM, order) {
            Some(first) => {
                assert!(has_room || free, "the hypervisor has taken what is guaranteed");
                self.given(first, order);
                self.system.insert(first, order);
            }
            None => assert!(!has_room && (!free || order > 4)),
        }
    }

    fn given(&mut self, first: u64, order: usize) {
        assert!(first.is_multiple_of(1 << order));
        for frame in first..first + (1 << order) {
            assert!(self.memory.remove(&frame), "given twice, or no memory");
        }
    }

    fn free_piece(&mut self, first: u64, order: usize) {
        assert!(!self.real.free(first, order + 1));
        assert!(order == 0 || !self.real.free(first + 1, order));
        assert!(self.real.free(first, order) && !self.real.free(first, order));
        self.memory.extend(first..first + (1 << order));
    }

    fn at(&self, which: Index) -> Option<usize> {
        (!self.vms.is_empty()).then(|| which.index(self.vms.len()))
    }

    /// The real account agrees with the model, and every promise can be kept at this moment.
    fn check(&self) {
        assert_eq!(self.real.free_frames(), self.memory.len() as u64);
        assert_eq!(
            (self.real.account().total(), self.real.account().left()),
            (self.total, self.left())
        );
        assert!(self.free() >= self.owed(), "more is owed than is free");
        for (id, vm) in &self.vms {
            let account = self.real.account();
            assert_eq!((account.used(*id), account.above(*id)), (vm.used(), vm.above()));
            let singles =
                || vm.pieces.iter().filter(|(_, order)| **order == 0).map(|(first, _)| first);
            for frame in singles() {
                let given = singles().filter(|other| **other / CHUNK == frame / CHUNK).count();
                assert_eq!(self.real.given_around(*frame), Some(given as u32));
            }
        }
    }

    /// Each active VM takes all that it is guaranteed, and all others of the heap.
    fn take_everything(&mut self) {
        for (_, vm) in &mut self.vms {
            self.heap.fill(&mut vm.heap, 4096);
            self.heap.fill(&mut vm.heap, 1);
        }
        for at in 0..self.vms.len() {
            let (id, vm) = &mut self.vms[at];
            if vm.state != State::Active {
                continue;
            }
            for &order in CLASSES.iter().rev() {
                while vm.is_within(order) {
                    let given = self.real.allocate(*id, order);
                    let first = given.expect("a VM within its guarantee got nothing");
                    assert!((first..first + (1 << order)).all(|frame| self.memory.remove(&frame)));
                    vm.insert(first, order);
                }
            }
        }
        self.check();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Admit(Wants),
    Activate(Index),
    /// So many times, in a VM that is ending, or not.
    Ask(Index, usize, usize, bool),
    GiveBack(Index, Index),
    Part(Index, Index),
    Leave(Index),
    System(usize),
    SystemFrees(Index),
    /// Of no VM, it is the hypervisor.
    Heap(Option<Index>, HeapStep),
}

#[derive(Clone, Copy, Debug)]
enum HeapStep {
    /// So many bytes, so many times.
    Take(usize, usize),
    Free(Index),
    Fill(usize),
    Thin,
}

fn step() -> impl Strategy<Value = Step> {
    let beyond = prop_oneof![Just(0_u64), 0_u64..1500];
    let wants = ((0_u64..600), (0_u64..4), (0_u64..6), beyond, 16_usize << 10..160 << 10);
    let wants = wants.prop_map(|(frames, roots, larger, beyond, heap)| Wants {
        guaranteed: [frames, roots, larger],
        beyond,
        heap,
    });
    let bytes = prop_oneof![6 => 1_usize..256, 3 => 256_usize..4096, 1 => 4096_usize..16384];
    let heap = prop_oneof![
        6 => (bytes.clone(), 1_usize..60).prop_map(|(bytes, times)| HeapStep::Take(bytes, times)),
        6 => any::<Index>().prop_map(HeapStep::Free),
        3 => bytes.prop_map(HeapStep::Fill),
        3 => Just(HeapStep::Thin),
    ];
    let vm = prop::option::weighted(0.9, any::<Index>());
    let order =
        prop_oneof![6 => Just(0_usize), 1 => Just(1_usize), 1 => Just(3_usize), 2 => Just(5_usize)];
    prop_oneof![
        2 => wants.prop_map(Step::Admit),
        3 => any::<Index>().prop_map(Step::Activate),
        9 => (any::<Index>(), order, 1_usize..90, prop::bool::weighted(0.1))
            .prop_map(|(vm, order, times, ending)| Step::Ask(vm, order, times, ending)),
        6 => (any::<Index>(), any::<Index>()).prop_map(|(vm, piece)| Step::GiveBack(vm, piece)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(vm, piece)| Step::Part(vm, piece)),
        1 => any::<Index>().prop_map(Step::Leave),
        1 => (0_usize..7).prop_map(Step::System),
        1 => any::<Index>().prop_map(Step::SystemFrees),
        18 => (vm, heap).prop_map(|(vm, what)| Step::Heap(vm, what)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_vm_within_its_guarantee_never_meets_an_allocation_that_fails(
        holes in vec((0_u64..CHUNKS * CHUNK, 1_u64..70), 0..5),
        steps in vec(step(), 1..160),
    ) {
        let count = CHUNKS as usize + 1;
        let (mut blocks, mut infos) = (vec![FrameInfo::ABSENT; count], vec![ChunkInfo::ABSENT; count]);
        let (mut shares, mut rooms) = (vec![ShareInfo::ABSENT; SHARES + 1], vec![NO_ROOM; SHARES + 1]);
        let first = BASE / CHUNK;
        let spans = [Span::new(first..first + count as u64, 0)];
        let spans = Spans::new(&spans);
        let books = Books { spans, blocks: &mut blocks, chunks: &mut infos, shares: &mut shares, rooms: &mut rooms };
        let mut real = Chunks::new(books);
        let is_hole = |frame: u64| holes.iter().any(|&(at, len)| (BASE + at..BASE + at + len).contains(&frame));
        // Whole chunks alone are added.
        let whole = |chunk: &u64| (chunk * CHUNK..(chunk + 1) * CHUNK).all(|frame| !is_hole(frame));
        for run in runs((BASE..BASE + CHUNKS * CHUNK).filter(|&frame| !is_hole(frame))) {
            real.add(run);
        }
        let memory: BTreeSet<u64> = (BASE / CHUNK..BASE / CHUNK + CHUNKS)
            .filter(whole)
            .flat_map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK)
            .collect();
        let total = memory.len() as u64 / CHUNK;
        let (mut heap, own_heap) = (Heap::new(), heap::Pieces::own());
        let nothing = heap.allocated();
        let mut machine =
            Machine { real, heap, own_heap, vms: Vec::new(), system: BTreeMap::new(), chosen: None, memory, total };
        machine.check();

        for step in steps {
            match step {
                Step::Admit(wants) => machine.admit(wants),
                Step::Activate(vm) => machine.activate(vm),
                Step::Ask(vm, order, times, ending) => (0..times).for_each(|_| machine.ask(vm, order, ending)),
                Step::GiveBack(vm, piece) => machine.give_back(vm, piece),
                Step::Part(vm, piece) => machine.part(vm, piece),
                Step::Leave(vm) => if let Some(at) = machine.at(vm) { machine.leave(at) },
                Step::System(order) => machine.system(order),
                Step::SystemFrees(piece) => {
                    if machine.system.is_empty() { continue }
                    let (&first, &order) = machine.system.iter().nth(piece.index(machine.system.len())).unwrap();
                    machine.free_piece(first, order);
                    machine.system.remove(&first);
                }
                Step::Heap(vm, what) => machine.heap(vm, what),
            }
            machine.check();
        }
        machine.take_everything();

        // All of it comes back in one piece.
        for at in (0..machine.vms.len()).rev() {
            machine.leave(at);
        }
        let pieces = machine.vms.iter().flat_map(|(_, vm)| vm.pieces.clone());
        let given: Vec<(u64, usize)> = pieces.chain(machine.system.clone()).collect();
        for (first, order) in given {
            assert!(machine.real.free(first, order));
        }
        prop_assert_eq!(machine.real.free_frames(), total * CHUNK);
        prop_assert_eq!(machine.real.account().left(), total);
        machine.heap.leave(&mut machine.own_heap);
        prop_assert_eq!(machine.heap.allocated(), nothing);
    }
}

proptest! {
    #[test]
    fn frames_that_are_taken_back_together_are_as_free_as_those_taken_back_one_by_one(
        given in 1..5 * CHUNK as usize,
        order in vec(any::<Index>(), 0..4 * CHUNK as usize),
        strange in vec((0..8 * CHUNK, any::<Index>()), 0..3),
    ) {
        let outcomes = [false, true].map(|together| {
            let mut outcome = (0, 0, Vec::new());
            with_machine(6, |mut machine| {
                let share = machine.admit(6).unwrap();
                assert!(machine.activate(share));
                let mut left: Vec<u64> =
                    (0..given).map(|_| machine.allocate(share, 0).unwrap()).collect();
                let mut back = Vec::new();
                for which in &order {
                    if left.is_empty() { break }
                    back.push(left.swap_remove(which.index(left.len())));
                }
                // Some that are in no chunk, were not given, or come twice.
                for (frame, at) in &strange {
                    let at = at.index(back.len() + 1);
                    back.insert(at, BASE + frame);
                    left.retain(|left| *left != BASE + frame);
                }
                outcome.0 = if together {
                    machine.free_all(&back)
                } else {
                    back.iter().filter(|&&frame| machine.free(frame, 0)).count() as u64
                };
                outcome.1 = machine.free_frames();
                outcome.2.extend(core::iter::from_fn(|| machine.allocate(share, 0)));
            });
            outcome
        });
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}

proptest! {
    #[test]
    fn frames_that_are_taken_together_are_those_that_are_taken_one_by_one(
        before in 0..4 * CHUNK as usize,
        back in vec(any::<Index>(), 0..2 * CHUNK as usize),
        counts in vec(0..2 * CHUNK as usize, 1..5),
    ) {
        let outcomes = [false, true].map(|together| {
            let mut outcome = (Vec::new(), Vec::new(), Vec::new());
            with_machine(6, |mut machine| {
                let share = machine.admit(5).unwrap();
                // What the hypervisor has is not the VM's to take.
                assert!(machine.activate(share) && machine.allocate(ShareId::SYSTEM, 0).is_some());
                let mut left: Vec<u64> =
                    (0..before).map(|_| machine.allocate(share, 0).unwrap()).collect();
                for which in &back {
                    if left.is_empty() { break }
                    assert!(machine.free(left.swap_remove(which.index(left.len())), 0));
                }
                for &count in &counts {
                    let mut frames = vec![0; count];
                    let given = if together {
                        machine.allocate_all(share, &mut frames)
                    } else {
                        let taken = frames.iter_mut().position(|frame| match machine.allocate(share, 0) {
                            Some(given) => { *frame = given; false }
                            None => true,
                        });
                        if let Some(taken) = taken {
                            assert!(frames[..taken].iter().all(|&frame| machine.free(frame, 0)));
                        }
                        taken.is_none()
                    };
                    outcome.0.push((given, machine.free_frames(), machine.account().used(share)));
                    if given {
                        outcome.1.extend(frames);
                    }
                }
                outcome.2.extend(core::iter::from_fn(|| machine.allocate(share, 0)));
                outcome.2.sort_unstable();
            });
            outcome
        });
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}

/// The frames, as runs of those that follow each other.
fn runs(frames: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for frame in frames {
        match runs.last_mut() {
            Some(run) if run.end == frame => run.end += 1,
            _ => runs.push(frame..frame + 1),
        }
    }
    runs
}

/// Memory of `total` chunks, and room for shares.
fn with_machine(total: u64, work: impl FnOnce(Chunks<'_>)) {
    let (mut blocks, mut infos) =
        (vec![FrameInfo::ABSENT; total as usize], vec![ChunkInfo::ABSENT; total as usize]);
    let (mut shares, mut rooms) = (vec![ShareInfo::ABSENT; SHARES + 1], vec![NO_ROOM; SHARES + 1]);
    let spans = [Span::new(BASE / CHUNK..BASE / CHUNK + total, 0)];
    let spans = Spans::new(&spans);
    let books = Books {
        spans,
        blocks: &mut blocks,
        chunks: &mut infos,
        shares: &mut shares,
        rooms: &mut rooms,
    };
    let mut machine = Chunks::new(books);
    machine.add(BASE..BASE + total * CHUNK);
    work(machine);
}

#[test]
fn a_vm_is_not_ended_for_what_its_neighbour_takes() {
    with_machine(100, |mut machine| {
        let (modest, greedy) = (machine.admit(10).unwrap(), machine.admit(20).unwrap());
        assert!(machine.activate(modest) && machine.activate(greedy));
        let taken =
            (0..200 * CHUNK).take_while(|_| machine.allocate(greedy, 0).is_some()).count() as u64;
        assert_eq!(taken, 90 * CHUNK);
        assert_eq!(machine.choose(greedy), Some(greedy));
        assert!((0..10 * CHUNK).all(|_| machine.allocate(modest, 0).is_some()));
        // Beyond its guarantee it would borrow, but less than the other has.
        assert_eq!(machine.allocate(modest, 0), None);
        assert_eq!(machine.choose(modest), Some(greedy));
    });
}

#[test]
fn no_vm_is_ended_for_one_that_is_ending() {
    with_machine(100, |mut machine| {
        let shares = [(); 3].map(|()| machine.admit(0).unwrap());
        assert!(shares.iter().all(|&share| machine.activate(share)));
        let [greedy, lesser, third] = shares;
        let given: Vec<u64> =
            (0..60 * CHUNK).map(|_| machine.allocate(greedy, 0).unwrap()).collect();
        assert!((0..40 * CHUNK).all(|_| machine.allocate(lesser, 0).is_some()));
        let asker = |share| Asker { share, was_chosen: false, is_ending: false };
        // Killed by the user, or chosen itself: both have threads that have just got no frame.
        let killed = Asker { is_ending: true, ..asker(lesser) };
        let chosen = Asker { was_chosen: true, ..asker(lesser) };
        assert_eq!([killed, chosen].map(|asker| asker.next(&mut machine)), [Next::Over; 2]);
        // Nothing was chosen for it: by now the other has more.
        let (some, _) = given.split_at(given.len() / 2);
        assert!(some.iter().all(|&frame| machine.free(frame, 0)));
        assert_eq!(asker(third).next(&mut machine), Next::Again);
        assert_eq!(killed.next(&mut machine), Next::Over, "though there is a frame for it");
        assert!((0..30 * CHUNK).all(|_| machine.allocate(third, 0).is_some()));
        assert_eq!(asker(third).next(&mut machine), Next::Wait(Some(lesser)));
        machine.leave(lesser);
        // What it had is coming back.
        assert_eq!(asker(third).next(&mut machine), Next::Wait(Some(lesser)));
    });
}

#[test]
fn a_vm_that_is_to_be_frozen_waits_for_its_frames_and_one_that_ends_does_not() {
    with_machine(100, |mut machine| {
        let shares = [(); 2].map(|()| machine.admit(0).unwrap());
        assert!(shares.iter().all(|&share| machine.activate(share)));
        let [greedy, lesser] = shares;
        assert!((0..60 * CHUNK).all(|_| machine.allocate(greedy, 0).is_some()));
        let given: Vec<u64> =
            (0..40 * CHUNK).map(|_| machine.allocate(lesser, 0).unwrap()).collect();
        let ending = Ending::default();
        let asker = || Asker { share: lesser, was_chosen: false, is_ending: ending.is_final() };
        assert!(ending.mark(End::Frozen));
        // Its device has half a request done, which its forks go on with.
        assert_eq!(asker().next(&mut machine), Next::Wait(Some(greedy)));
        assert!(machine.free(given[0], 0));
        assert_eq!(asker().next(&mut machine), Next::Again);
        assert!(machine.allocate(lesser, 0).is_some());
        assert!(ending.mark(End::Killed));
        assert_eq!(asker().next(&mut machine), Next::Over);
    });
}

#[test]
fn no_other_vm_is_ended_while_what_one_had_is_coming_back() {
    with_machine(100, |mut machine| {
        let shares = [(); 2].map(|()| machine.admit(0).unwrap());
        assert!(shares.iter().all(|&share| machine.activate(share)));
        let [greedy, lesser] = shares;
        let given: Vec<u64> =
            (0..60 * CHUNK).map(|_| machine.allocate(greedy, 0).unwrap()).collect();
        assert!((0..40 * CHUNK).all(|_| machine.allocate(lesser, 0).is_some()));
        let late = machine.admit(50).unwrap();
        assert_eq!(machine.choose(late), Some(greedy));
        machine.leave(greedy);
        // By now the other has more.
        let (first, rest) = given.split_at(given.len() / 2);
        assert!(first.iter().all(|&frame| machine.free(frame, 0)));
        assert_eq!(machine.choose(late), Some(greedy));
        assert!(rest.iter().all(|&frame| machine.free(frame, 0)));
        assert!(machine.activate(late));
        // There is no need for another.
        assert_eq!(machine.choose(lesser), None);
        assert!((0..10 * CHUNK).all(|_| machine.allocate(lesser, 0).is_some()));
        assert_eq!(machine.choose(lesser), Some(lesser));
    });
}

#[test]
fn a_share_waits_for_what_is_lent_and_nothing_more_is_lent_meanwhile() {
    with_machine(100, |mut machine| {
        let greedy = machine.admit(0).unwrap();
        assert!(machine.activate(greedy));
        let given: Vec<u64> =
            (0..80 * CHUNK).map(|_| machine.allocate(greedy, 0).unwrap()).collect();
        let wanted = Refused::Guarantee { wanted: 101, left: 100 };
        assert_eq!(machine.admit(101), Err(wanted));
        let late = machine.admit(50).unwrap();
        assert!(!machine.activate(late));
        assert_eq!(machine.allocate(late, 0), None);
        assert_eq!(machine.allocate(greedy, 0), None);
        assert_eq!(machine.choose(late), Some(greedy));
        machine.leave(greedy);
        assert!(!machine.activate(late));
        assert!(given.iter().all(|&frame| machine.free(frame, 0)));
        assert!(machine.activate(late) && machine.allocate(late, 9).is_some());
    });
}

#[test]
fn larger_pieces_are_given_though_no_two_free_frames_were_side_by_side() {
    with_machine(64, |mut machine| {
        let (a, b) = (machine.admit(32).unwrap(), machine.admit(32).unwrap());
        assert!(machine.activate(a) && machine.activate(b));
        let of_a: Vec<u64> = (0..32 * CHUNK)
            .map(|_| {
                let frame = machine.allocate(a, 0).unwrap();
                machine.allocate(b, 0).unwrap();
                frame
            })
            .collect();
        machine.leave(a);
        assert!(of_a.iter().all(|&frame| machine.free(frame, 0)));
        let next = machine.admit(32).unwrap();
        assert!(machine.activate(next));
        assert!((0..2 * 32).all(|_| machine.allocate(next, 3).is_some()));
    });
}

#[test]
fn what_a_frozen_vm_keeps_is_guaranteed_and_it_is_never_chosen_for_others() {
    let mut shares = [ShareInfo::ABSENT; 4];
    let mut account = Account::new(&mut shares);
    account.add(100);
    let [frozen, borrows] = [(); 2].map(|()| account.admit(0).unwrap());
    assert!(account.activate(frozen) && account.activate(borrows));
    account.take(frozen, 60);
    account.take(borrows, 40);
    assert_eq!(account.choose(borrows, 1), Some(frozen), "it is the furthest above");
    assert!(account.keep(frozen));
    assert_eq!((account.above(frozen), account.left()), (0, 40));
    assert_eq!(account.choose(borrows, 1), Some(borrows));
    account.give_back(borrows, 40);
    account.leave(borrows);

    // What others are guaranteed cannot be kept, and nothing has changed then.
    let mut shares = [ShareInfo::ABSENT; 4];
    let mut account = Account::new(&mut shares);
    account.add(100);
    let frozen = account.admit(0).unwrap();
    assert!(account.activate(frozen));
    account.take(frozen, 60);
    let other = account.admit(50).unwrap();
    assert!(!account.activate(other) && !account.keep(frozen) && !account.keep(other));
    assert_eq!((account.above(frozen), account.left()), (60, 50));
}

#[test]
fn an_image_is_allowed_what_it_takes_up_and_only_what_is_neither_used_nor_guaranteed() {
    let mut shares = [ShareInfo::ABSENT; 5];
    let mut account = Account::new(&mut shares);
    account.add(100);
    let [image, its, borrows] = [0, 50, 0].map(|units| account.admit(units).unwrap());
    assert!([image, its, borrows].iter().all(|&id| account.activate(id)));
    account.take(image, 20);
    assert!(account.keep(image));
    account.take(its, 10);
    assert!(
        !account.allow(image, 31) && account.left() == 30,
        "what others are guaranteed is not given"
    );
    assert!(account.allow(image, 10));
    assert_eq!((account.above(image), account.left()), (0, 20));
    // What it is allowed it gets, whatever others have borrowed meanwhile.
    account.take(borrows, 20);
    assert!(!account.may_take(borrows, 1) && account.may_take(image, 10));
    assert!(!account.allow(image, 20), "it is borrowed");
    account.take(image, 10);
    account.give_back(its, 10);
    assert!(account.keep(image));
    assert_eq!((account.above(image), account.left()), (0, 20));
    assert!(account.may_take(its, 50), "the VM keeps its guarantee");
    let other = account.admit(1).unwrap();
    assert!(!account.allow(other, 0), "it is not active");
}
