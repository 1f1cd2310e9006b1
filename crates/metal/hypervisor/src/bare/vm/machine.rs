//! A VM, which may run several times.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_devices::virtio::PAGE_BYTES;
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::needs::Needs;
use mayfly_hypervisor::overlay;
use mayfly_hypervisor::plan::Plan;

use super::counts::Counts;
use super::live::{Asked, Room};
use super::run::Run;
use super::template::Template;
use crate::bare::devices::balloon::GivenBack;
use crate::bare::devices::disk::Medium;
use crate::bare::devices::frames::Frames;
use crate::bare::devices::network::Seat;
use crate::bare::devices::uart::Uart;
use crate::bare::own::disk;
use crate::bare::own::tenant::Tenant;
use crate::bare::processor::heap::Guaranteed;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads::Account;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::share::{Ends, Share, check, pause};
use crate::bare::world::{World, Worlds};

/// How many VMs were made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A VM.
pub(crate) struct Machine {
    /// Which one it is, from 1 on, in the order in which they were made.
    pub(crate) number: u64,
    pub(crate) plan: Plan,
    pub(crate) uart: Arc<Uart>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) account: Arc<Account>,
    /// What its disk keeps from one run to the next, once it has run; what lies over its partition, until it ends.
    disk: SpinLock<Option<Arc<GuestMemory>>>,
    /// What it begins as, if it is a fork.
    origin: Option<Arc<Template>>,
    /// Its place at the desk of a service, if it is a fork of one, until it begins.
    seat: SpinLock<Option<Seat>>,
    /// What others begin as, once it was frozen.
    template: SpinLock<Option<Arc<Template>>>,
    /// Its partition of the machine's disk, from its start to its end.
    partition: SpinLock<Option<Arc<Tenant>>>,
    /// What it runs in, from its start to its end.
    worlds: SpinLock<Option<Worlds>>,
    present: SpinLock<Present>,
    /// What the monitor asks for that forks it while it runs.
    asked: Asked,
    /// The heap that is guaranteed with it, whether it runs or not.
    _heap: Guaranteed,
}

/// The state of a VM.
enum Present {
    /// It was never started, or has ended.
    Stopped,
    /// It is about to run. If an end is there, it ends at once.
    Starting(Option<End>),
    Running(Arc<Run>, Arc<GuestMemory>),
}

impl Machine {
    /// A VM that does not run. It begins as `origin`, or with its kernel.
    ///
    /// # Errors
    ///
    /// When the heap that it needs cannot be guaranteed.
    pub(crate) fn try_new(plan: Plan, origin: Option<Arc<Template>>) -> Result<Self, String> {
        let heap = Guaranteed::try_new(Needs::created(&plan) as usize).map_err(|left| {
            format!("there is too little heap for a VM: {} KiB are left", left >> 10)
        })?;
        let uart = Arc::new(Uart::new(&plan.name));
        let (disk, partition, template, worlds) =
            (SpinLock::new(None), SpinLock::new(None), SpinLock::new(None), SpinLock::new(None));
        let present = SpinLock::new(Present::Stopped);
        let account = Account::new(&plan.name, plan.weight, plan.cap);
        Ok(Self {
            number: MADE.fetch_add(1, Ordering::Relaxed) + 1,
            plan,
            uart,
            counts: Arc::default(),
            account,
            disk,
            origin,
            seat: SpinLock::new(None),
            template,
            partition,
            worlds,
            present,
            asked: Asked::new(),
            _heap: heap,
        })
    }

    /// The same, of a service, with a place at its desk. It runs once.
    pub(crate) fn seated(mut self, seat: Seat) -> Self {
        self.seat = SpinLock::new(Some(seat));
        self
    }

    /// Gives it its partition of the machine's disk, if it is to have one. The partition is its own until it is
    /// [over](Machine::over).
    ///
    /// # Errors
    ///
    /// Why it does not get it.
    pub(crate) fn claim(&self) -> Result<(), String> {
        if let Some(partition) = &self.plan.partition {
            let tenant = disk::claim(partition, &self.plan.name, &self.account)?;
            let before = self.partition.lock().replace(tenant);
            drop(before);
        }
        Ok(())
    }

    /// Whether it has memory that lies over its partition.
    fn is_overlaid(&self) -> bool {
        self.plan.partition.as_ref().is_some_and(|partition| partition.is_overlaid)
    }

    /// Bytes of memory of its disk, once it has [claimed](Machine::claim) its partition.
    pub(crate) fn disk_bytes(&self) -> u64 {
        match self.tenant().filter(|_| self.is_overlaid()) {
            None => self.plan.disk,
            Some(tenant) => overlay::bytes(tenant.sectors()).1,
        }
    }

    /// Has it guaranteed what it needs, before it [begins](Machine::begin), and before its memory [is its
    /// own](Machine::has_memory).
    ///
    /// # Errors
    ///
    /// Why that cannot be guaranteed. Then it has nothing.
    pub(crate) fn admit(&self, needs: &Needs) -> Result<(), String> {
        let has_disk = self.disk.lock().is_some();
        check(needs.chunks() - if has_disk { needs.disk } else { 0 })?;
        let run = Share::admit(&self.account, needs.run, needs.heap)?;
        let memory = Share::admit(&self.account, needs.pages, 0)?;
        let bytes = self.disk_bytes();
        if bytes != 0 && !has_disk {
            let its = Share::admit(&self.account, needs.disk, needs.disk_heap)?;
            let memory = GuestMemory::try_new(World::of(&its), bytes);
            let mut memory = memory.map_err(|error| error.to_string())?;
            if self.is_overlaid() {
                memory = memory.by_frames();
            }
            if let Some(image) = self.origin.as_ref().and_then(|origin| origin.disk.clone()) {
                memory = memory.over(image);
            }
            *self.disk.lock() = Some(Arc::new(memory));
        }
        *self.worlds.lock() = Some(Worlds { run: World::of(&run), memory: World::of(&memory) });
        Ok(())
    }

    /// Whether what it is guaranteed is there. If not, VMs that have borrowed it are being ended: to be called again.
    pub(crate) fn has_memory(&self) -> bool {
        self.all_shares(Share::activate)
    }

    /// The same, and nobody is ended for it.
    pub(crate) fn has_memory_at_once(&self) -> bool {
        self.all_shares(Share::try_activate)
    }

    fn all_shares(&self, is_active: fn(&Share) -> bool) -> bool {
        let worlds = self.worlds();
        let disk = self.disk.lock().clone();
        let is_active = |world: &World| world.share().is_none_or(|share| is_active(share));
        worlds.is_none_or(|worlds| is_active(&worlds.run) && is_active(&worlds.memory))
            && disk.is_none_or(|disk| is_active(disk.world()))
    }

    /// What it runs in.
    pub(crate) fn worlds(&self) -> Option<Worlds> {
        self.worlds.lock().clone()
    }

    /// Whether it begins as a frozen VM.
    pub(crate) fn is_fork(&self) -> bool {
        self.origin.is_some()
    }

    /// Its place at the desk of a service, if it has one.
    pub(super) fn take_seat(&self) -> Option<Seat> {
        self.seat.lock().take()
    }

    /// What it begins as, if it is a fork.
    pub(super) fn origin(&self) -> Option<&Arc<Template>> {
        self.origin.as_ref()
    }

    /// What others begin as, if it was frozen.
    pub(crate) fn template(&self) -> Option<Arc<Template>> {
        self.template.lock().clone()
    }

    /// What it is to be given so that it can be forked while it runs. `needs` is what it needs when it starts.
    ///
    /// # Errors
    ///
    /// Why it does not get it, or that it does not run.
    pub(crate) fn room(&self, needs: &Needs) -> Result<Room, String> {
        let memory = match &*self.present.lock() {
            Present::Stopped => return Err("it is not running".into()),
            Present::Starting(_) => return Err("it has not begun yet".into()),
            Present::Running(_, memory) => Arc::clone(memory),
        };
        Room::try_new(self, &memory, needs)
    }

    /// Stops its run for a moment, so that it can be forked. The run's thread [answers](Machine::asked). Returns the run.
    ///
    /// # Errors
    ///
    /// As [`Machine::end_frozen`].
    pub(crate) fn stop_for_forks(&self, room: Room) -> Result<Arc<Run>, &'static str> {
        self.counts.stand();
        self.asked.ask(room);
        let stopped = self.end_kept(|memory| memory.is_alone_over_image() || memory.can_be_image());
        stopped.inspect_err(|_| {
            drop(self.asked.take());
            self.counts.goes_on();
        })
    }

    /// What the monitor asks for that forks it while it runs.
    pub(crate) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Its run, which was forked, takes the frames of its memory from `world` from now on.
    pub(super) fn goes_on_in(&self, run: &Run, world: &Arc<World>) {
        run.set_memory_world(world);
        let running = match &*self.present.lock() {
            Present::Running(run, _) => Some(Arc::clone(run)),
            _ => None,
        };
        let before = self
            .worlds
            .lock()
            .as_mut()
            .map(|worlds| core::mem::replace(&mut worlds.memory, Arc::clone(world)));
        if let Some(share) = before.as_ref().and_then(|world| world.share()) {
            share.set_run(None);
        }
        if let Some(share) = world.share() {
            share.set_run(running.map(|run| run as Arc<dyn Ends>));
        }
    }

    /// Ends its run so that it is frozen. Returns the run.
    ///
    /// # Errors
    ///
    /// Why not: it has no run that could be, or one that ends already.
    pub(crate) fn end_frozen(&self) -> Result<Arc<Run>, &'static str> {
        self.end_kept(GuestMemory::can_be_image)
    }

    /// Ends its run so that what it is can be kept, if its memory `can_be` kept.
    fn end_kept(&self, can_be: impl Fn(&GuestMemory) -> bool) -> Result<Arc<Run>, &'static str> {
        let run = match &*self.present.lock() {
            Present::Stopped => return Err("it is not running"),
            Present::Starting(_) => return Err("it has not begun yet"),
            Present::Running(_, memory) if !can_be(memory) => {
                return Err("it is a fork of a fork, eight times");
            }
            // Under the lock: no other run is begun in between.
            Present::Running(run, _) if run.mark_frozen() => Arc::clone(run),
            Present::Running(..) => return Err("it is just ending"),
        };
        run.tell();
        run.gone();
        Ok(run)
    }

    /// Has its run go back to what it began as. Returns whether it does: not if it does not run, or ends.
    pub(crate) fn go_back(&self) -> bool {
        let Some(origin) = &self.origin else { return false };
        self.counts.ask(timer::ticks());
        let run = match &*self.present.lock() {
            // One that was forked itself has another image by now: it is made anew.
            Present::Running(_, memory) if !memory.is_over(&origin.memory) => return false,
            Present::Running(run, _) if run.mark(End::Back) => Arc::clone(run),
            Present::Running(run, _) => return run.ending() == Some(End::Back),
            _ => return false,
        };
        run.tell();
        true
    }

    /// Whether its run is going back to what it began as.
    pub(crate) fn is_going_back(&self) -> bool {
        matches!(&*self.present.lock(), Present::Running(run, _) if run.ending() == Some(End::Back))
    }

    /// Its run has gone back: `next` takes its place, and ends if the run was to end meanwhile.
    pub(super) fn has_gone_back(&self, run: &Run, next: &Arc<Run>, memory: &Arc<GuestMemory>) {
        self.has_begun(next, memory);
        // No other thread ends it any more: it is found neither here nor by its share.
        if let Some(end) = run.ending().filter(|end| *end != End::Back) {
            next.end(end);
        }
    }

    /// It was frozen, and runs no more.
    pub(super) fn freeze(&self, template: Template) {
        *self.template.lock() = Some(Arc::new(template));
    }

    /// What its disk keeps, if it has one.
    pub(super) fn disk_memory(&self) -> Option<Arc<GuestMemory>> {
        self.disk.lock().clone()
    }

    /// Its disk, if it is to have one.
    pub(super) fn disk(&self) -> Option<Medium> {
        if let Some(tenant) = self.tenant() {
            let over = self.disk.lock().clone().filter(|_| self.is_overlaid());
            return Some(Medium::Partition(tenant, over));
        }
        let memory = self.disk.lock().clone()?;
        Some(Medium::Frames(Frames::new(self.plan.disk, memory)))
    }

    /// What has its partition.
    pub(crate) fn tenant(&self) -> Option<Arc<Tenant>> {
        self.partition.lock().clone()
    }

    /// Whether the machine's disk has still to do what a run of it that is over has asked for.
    pub(crate) fn is_disk_busy(&self) -> bool {
        self.tenant().is_some_and(|tenant| tenant.is_busy())
    }

    /// How many frames its disk has.
    pub(crate) fn disk_frames(&self) -> u64 {
        self.disk.lock().as_ref().map_or(0, |disk| disk.frames())
    }

    /// Marks it, which is stopped, as about to run.
    pub(crate) fn begin(&self) {
        *self.present.lock() = Present::Starting(None);
        // Now: a caller that waits for its output waits from now on.
        self.uart.begin();
    }

    /// Ends its run, if it runs.
    pub(crate) fn end(&self, end: End) {
        let (run, is_new) = match &mut *self.present.lock() {
            Present::Stopped => return,
            Present::Starting(asked) => {
                *asked = Some(end);
                return;
            }
            // Under the lock: a run that resets its machine is not over in between, and the next one begun.
            Present::Running(run, _) => (Arc::clone(run), run.mark(end)),
        };
        if is_new {
            run.tell();
        }
    }

    /// A run begins.
    pub(super) fn has_begun(&self, run: &Arc<Run>, memory: &Arc<GuestMemory>) {
        if let Some(share) = memory.world().share() {
            share.set_run(Some(run.clone()));
        }
        let running = Present::Running(Arc::clone(run), Arc::clone(memory));
        let before = core::mem::replace(&mut *self.present.lock(), running);
        if let Present::Starting(Some(end)) = before {
            run.end(end);
        }
    }

    /// A run is over; another may follow.
    pub(super) fn has_ended(&self) {
        if let Some(share) = self.worlds().as_ref().and_then(|worlds| worlds.memory.share()) {
            share.set_run(None);
        }
        let before = core::mem::replace(&mut *self.present.lock(), Present::Starting(None));
        drop(before);
    }

    /// It is stopped, and is guaranteed no more than its disk in memory.
    pub(crate) fn over(&self) {
        let worlds = self.worlds.lock().take();
        drop(worlds);
        // A fork begins anew as its frozen VM was, and so does its disk; and a partition may be another when it is next claimed.
        if self.is_fork() || self.is_overlaid() {
            let disk = self.disk.lock().take();
            drop(disk);
        }
        let tenant = self.partition.lock().take();
        if let Some(tenant) = tenant {
            tenant.leave();
        }
        *self.present.lock() = Present::Stopped;
    }

    /// Whether it runs, or is about to, or some of its memory is still to be freed.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(*self.present.lock(), Present::Stopped)
    }

    /// Whether a run of it is under way, which is not about to be another one.
    pub(crate) fn is_in_run(&self) -> bool {
        matches!(&*self.present.lock(), Present::Running(run, _) if run.ending() != Some(End::Back))
    }

    /// Its state, in a word.
    pub(crate) fn state(&self) -> &'static str {
        match *self.present.lock() {
            Present::Stopped if self.template.lock().is_some() => "frozen",
            Present::Stopped => "stopped",
            Present::Starting(_) => "starting",
            Present::Running(..) => "running",
        }
    }

    /// Waits until everything that a run had is given back, but for the stack of the thread that calls this.
    pub(crate) fn settle(&self) {
        let Some(worlds) = self.worlds() else { return };
        let used = |world: &World| world.share().map_or(0, |share| share.used());
        while used(&worlds.run) > 1 || used(&worlds.memory) > 0 {
            pause();
        }
    }

    /// Has the guest of its first vCPU take an `SError`. Returns whether that vCPU is there.
    pub(crate) fn fail(&self) -> bool {
        match &*self.present.lock() {
            Present::Running(run, _) => run.places.fail(0),
            _ => false,
        }
    }

    /// Prints what has become of the frames that its network card has sent and received in this run.
    pub(crate) fn say_frames(&self) {
        let run = match &*self.present.lock() {
            Present::Running(run, _) => Arc::clone(run),
            _ => return,
        };
        run.devices.say_frames(&self.plan.name);
    }

    /// Asks its guest to give back so many bytes of its memory, until its run ends.
    ///
    /// # Errors
    ///
    /// Why it cannot be asked.
    pub(crate) fn ask_for(&self, bytes: u64) -> Result<(), String> {
        let Plan { name, memory, .. } = &self.plan;
        if bytes > *memory {
            return Err(format!("{name} has {} MiB of memory", memory >> 20));
        }
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let asked = self.with_balloon(|balloon| balloon.ask_for(pages));
        asked.ok_or_else(|| {
            format!("{name} does not run, or has no balloon: balloon=yes gives it one")
        })
    }

    /// Does something with its balloon, if it runs and has one.
    pub(crate) fn with_balloon<T>(&self, then: impl FnOnce(&GivenBack) -> T) -> Option<T> {
        let run = match &*self.present.lock() {
            Present::Running(run, _) => Arc::clone(run),
            _ => return None,
        };
        run.devices.given_back().map(then)
    }

    /// How many pages of it share a frame with others, and how many faults of its guest met what merging had made empty or
    /// frozen; if it runs, and may be merged.
    pub(crate) fn merged(&self) -> Option<(u64, u64)> {
        self.plan.merge.as_ref()?;
        match &*self.present.lock() {
            Present::Running(_, memory) => Some((memory.merged(), memory.met())),
            _ => None,
        }
    }

    /// How many frames it was given, or has as an image.
    pub(crate) fn frames(&self) -> u64 {
        match &*self.present.lock() {
            Present::Running(_, memory) => memory.frames(),
            _ => self.template().map_or(0, |template| template.memory.frames()),
        }
    }
}
