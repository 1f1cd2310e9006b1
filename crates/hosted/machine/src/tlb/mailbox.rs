//! What others ask one CPU to forget, and whether it has. The protocol is the module [`super`]'s.

use std::mem::swap;

use mayfly_platform::Platform;
use mayfly_platform::lock::Lock;
use mayfly_platform::sync::{
    AtomicBool, AtomicU32, AtomicU64, CacheLine, Ordering, fence, spin_loop,
};
use mayfly_platform::tlb::{Scope, Vmid};

/// Requests that a mailbox holds; what is more makes the CPU forget everything.
pub(crate) const CAPACITY: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 256 };

/// Looks at a CPU's state before sleeping until it changes.
const SPINS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 128 };

/// In the CPU's state: it is in the guest. Above is how many posts it has acknowledged, modulo 2^31.
const IN_GUEST: u32 = 1;

/// A VMID's translations, of some guest frames or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) vmid: Vmid,
    pub(crate) scope: Scope,
}

impl Request {
    /// Whether it is this and `other` by now: pages next to each other, or the same ones. So a CPU that is out of its
    /// guest while one page after the other is invalidated does not have to forget everything.
    fn takes_up(&mut self, other: &Self) -> bool {
        let (Scope::Range(span), Scope::Range(next)) = (&mut self.scope, &other.scope) else {
            return false;
        };
        let are_alike = (span.stride, span.entries) == (next.stride, next.entries);
        let touch = span.gfns.start <= next.gfns.end && next.gfns.start <= span.gfns.end;
        let takes_up = self.vmid == other.vmid && are_alike && touch;
        if takes_up {
            let (start, end) = (&mut span.gfns.start, &mut span.gfns.end);
            (*start, *end) = ((*start).min(next.gfns.start), (*end).max(next.gfns.end));
        }
        takes_up
    }
}

/// How one CPU was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It was outside the guest, or had acknowledged already.
    No,
    /// By looking again and again.
    Looking,
    /// Asleep.
    Asleep,
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    /// How many posts there were, modulo 2^32. Issuers write it; the CPU polls it.
    posted: CacheLine<AtomicU32>,
    contents: CacheLine<Contents>,
    /// What the CPU says of itself.
    cpu: CacheLine<Cpu>,
}

#[derive(Debug)]
struct Contents {
    everything: AtomicBool,
    requests: Lock<Vec<Request>>,
}

#[derive(Debug)]
struct Cpu {
    /// [`IN_GUEST`] and acknowledged posts. Written by the CPU alone.
    state: AtomicU32,
    /// How many sleep until `state` changes.
    sleepers: AtomicU32,
    /// A bit for each VMID (modulo 64) that the CPU may hold translations of. Written by the CPU alone.
    vmids: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self {
            posted: CacheLine(AtomicU32::new(0)),
            contents: CacheLine(Contents {
                everything: AtomicBool::new(false),
                requests: Lock::new(Vec::with_capacity(CAPACITY)),
            }),
            cpu: CacheLine(Cpu {
                state: AtomicU32::new(0),
                sleepers: AtomicU32::new(0),
                vmids: AtomicU64::new(0),
            }),
        }
    }

    /// Whether the CPU may hold translations under `vmid`. The caller has executed **\[issue\]**.
    pub(crate) fn may_hold(&self, vmid: Vmid) -> bool {
        // Acquire: if the CPU has dropped the VMID, what it did under it has been done.
        self.cpu.vmids.load(Ordering::Acquire) & bit(vmid) != 0
    }

    /// Posts a request, or that everything is to be forgotten. Never waits.
    pub(crate) fn post(&self, request: Option<Request>, platform: &dyn Platform) {
        let is_put = request.is_some_and(|request| self.put(request, platform));
        if !is_put {
            // Release: who takes this sees what the issuer did before. A swap and not a store, so that one who takes
            // the mark of the last of several issuers, and leaves none for the others' counts, sees what they all did.
            self.contents.everything.swap(true, Ordering::Release);
        }
        // Release, pairing with the acquire in `take`: what has been counted is there to be taken.
        self.posted.fetch_add(1, Ordering::Release);
    }

    /// Puts a request with the others, unless another thread is using them, or there is no room. Returns whether it is there.
    fn put(&self, request: Request, platform: &dyn Platform) -> bool {
        let Some(mut requests) = self.contents.requests.try_lock(platform) else { return false };
        if requests.iter_mut().any(|posted| posted.takes_up(&request)) {
            return true;
        }
        let has_room = requests.len() < CAPACITY;
        if has_room {
            requests.push(request);
        }
        has_room
    }

    /// How many posts there have been, modulo 2^32: what to [wait](Mailbox::wait) for. The caller has executed
    /// **\[complete\]**.
    pub(crate) fn posted(&self) -> u32 {
        self.posted.load(Ordering::Relaxed)
    }

    /// Returns when the CPU is outside the guest, or has acknowledged so many posts. The caller has executed
    /// **\[complete\]**.
    pub(crate) fn wait(&self, target: u32, platform: &dyn Platform) -> Waited {
        // Acquire: the accesses that the CPU made before have been made.
        let is_done = |state: u32| {
            let left = target.wrapping_sub(state >> 1) << 1;
            state & IN_GUEST == 0 || left.cast_signed() <= 0
        };
        if is_done(self.cpu.state.load(Ordering::Acquire)) {
            return Waited::No;
        }
        for _ in 0..SPINS {
            spin_loop();
            if is_done(self.cpu.state.load(Ordering::Acquire)) {
                return Waited::Looking;
            }
        }
        self.cpu.sleepers.fetch_add(1, Ordering::Relaxed);
        // [sleep]
        fence(Ordering::SeqCst);
        loop {
            let state = self.cpu.state.load(Ordering::Acquire);
            if is_done(state) {
                break;
            }
            platform.wait(&self.cpu.state, state);
        }
        self.cpu.sleepers.fetch_sub(1, Ordering::Relaxed);
        Waited::Asleep
    }

    /// For the CPU, outside the guest: it is going to walk under `vmid`. What has been posted is to be taken first.
    pub(crate) fn walks(&self, vmid: Vmid) {
        self.may_come_to_hold(vmid);
        // [enter]
        fence(Ordering::SeqCst);
    }

    fn may_come_to_hold(&self, vmid: Vmid) {
        let vmids = self.cpu.vmids.load(Ordering::Relaxed);
        if vmids & bit(vmid) == 0 {
            self.cpu.vmids.store(vmids | bit(vmid), Ordering::Relaxed);
        }
    }

    /// For the CPU: it goes into the guest, under `vmid`, having acknowledged `seen` posts. What has been posted is to
    /// be taken before the first translation is used or made.
    pub(crate) fn enter(&self, vmid: Vmid, seen: u32) {
        self.may_come_to_hold(vmid);
        self.cpu.state.store(seen << 1 | IN_GUEST, Ordering::Relaxed);
        // [enter]
        fence(Ordering::SeqCst);
    }

    /// For the CPU: whether something has been posted since the `seen`th post.
    #[inline]
    pub(crate) fn has_mail(&self, seen: u32) -> bool {
        self.posted.load(Ordering::Relaxed) != seen
    }

    /// For the CPU: puts into `requests`, which is empty, what was posted and has not been taken yet. Returns how many
    /// posts there were, and whether everything is to be forgotten.
    pub(crate) fn take(&self, requests: &mut Vec<Request>, platform: &dyn Platform) -> (u32, bool) {
        let posted = self.posted.load(Ordering::Acquire);
        let is_free = self
            .contents
            .requests
            .try_lock(platform)
            .map(|mut posted| swap(&mut *posted, requests));
        // An issuer that has the lock is about to post more. What it keeps from being taken is forgotten now, and again
        // when it is taken.
        let everything = self.contents.everything.swap(false, Ordering::Acquire);
        (posted, everything || is_free.is_none())
    }

    /// For the CPU: it holds no translations, and will hold some of `vmid` alone.
    pub(crate) fn holds_only(&self, vmid: Vmid) {
        self.cpu.vmids.store(bit(vmid), Ordering::Release);
    }

    /// For the CPU, in the guest: it has forgotten what the first `seen` posts asked.
    pub(crate) fn acknowledge(&self, seen: u32, platform: &dyn Platform) {
        self.tell(seen << 1 | IN_GUEST, platform);
    }

    /// For the CPU: it leaves the guest, or is outside and has forgotten what the first `seen` posts asked.
    pub(crate) fn leave(&self, seen: u32, platform: &dyn Platform) {
        self.tell(seen << 1, platform);
    }

    fn tell(&self, state: u32, platform: &dyn Platform) {
        // Release, pairing with the acquires in `wait`: all accesses are done.
        self.cpu.state.store(state, Ordering::Release);
        // [tell]
        fence(Ordering::SeqCst);
        if self.cpu.sleepers.load(Ordering::Relaxed) != 0 {
            platform.wake(&self.cpu.state);
        }
    }
}

fn bit(vmid: Vmid) -> u64 {
    1 << (vmid.0 % 64)
}
