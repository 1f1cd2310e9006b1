//! How a running VM is forked: its run stops for a moment, what it is is kept, and it goes on.
//!
//! 1. *Room.* The thread of the monitor has the memory that the VM needs to go on [guaranteed](Room), before the VM stops.
//!    Where it cannot be, the VM is not stopped.
//! 2. *The stop.* The run ends as if it was to be frozen: the vCPUs leave their guest, each leaves what it is, and their threads
//!    end. The thread of the VM, which is that of its devices, takes the room. Its devices are held: its card stays on
//!    its network, and nobody gives it a frame. A run that ends in another way meanwhile ends in that way.
//! 3. *What can fail* comes first: the [model](super::arch::Model) of all that is not memory, which is a copy of what is at
//!    rest; its heap; and that what the memory uses stays guaranteed, as an image. If any of it fails, the VM goes on as after
//!    a stop, and the monitor says why.
//! 4. *The memory.* The VM's roots are [replaced](mayfly_vm::Vm::invalidate_all) by empty ones: that is the end of all that
//!    its vCPUs have mapped, and visits only what was written past the caches. Then what the memory has is
//!    [an image](crate::bare::world::memory), and so is what the disk has. Neither depends on how much that is, unless the
//!    image of an earlier fork is used again.
//! 5. *It goes on*: the same run, with the same devices and interrupt controller, the same number of its generation, and the
//!    same offset of its counter. The VM's threads begin anew, as they were. Its old tables are freed in the background.
//!
//! The monitor gets the [`Template`] before the last step, and makes forks of it as of one that is frozen. Nothing but the
//! forks has the template. When the last of them is gone, the VM alone has the image.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::needs::{CHUNK_BYTES, Needs};
use mayfly_vm::platform::sync::AtomicU32;
use mayfly_vm::{GoingOver, Vm};

use super::arch::{Model, Stopped};
use super::format::{Kinds, TableFormat};
use super::freeze;
use super::kept::NotResumed;
use super::machine::Machine;
use super::run::Run;
use super::template::Template;
use crate::bare::devices::arch::SerialPort;
use crate::bare::devices::frames::Frames;
use crate::bare::processor::heap::Guaranteed;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads;
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::share::{Share, check};

/// What a running VM gets so that it can be forked.
pub(crate) struct Room {
    /// What its memory leaves its layer to, unless the image behind it is used again.
    memory: Option<Arc<GuestMemory>>,
    /// The same of its disk.
    disk: Option<Arc<GuestMemory>>,
    /// The heap for its model.
    _heap: Guaranteed,
}

/// That a run has ended before it was forked.
pub(super) const HAS_ENDED: &str = "its guest has ended its run before";
const NO_HEAP: &str = "there is too little heap for what it is";
const NO_MEMORY: &str = "there is no memory for what it is";
const NOT_AT_REST: &str = "a part of it is not at rest";
const TOO_DEEP: &str =
    "eight images are behind it: the forks of the last one are to be destroyed first";

impl Room {
    /// What `machine` needs, which has `memory`, and `needs` so much when it starts. It is to be [made active](Room::is_active).
    ///
    /// # Errors
    ///
    /// Why it does not get it.
    pub(crate) fn try_new(
        machine: &Machine,
        memory: &GuestMemory,
        needs: &Needs,
    ) -> Result<Self, String> {
        let disk = machine.disk_memory();
        let layers = [Some(memory), disk.as_deref()].into_iter().flatten();
        if layers.clone().any(|it| !it.is_alone_over_image() && !it.can_be_image()) {
            return Err(TOO_DEEP.into());
        }
        let (pages, its_disk) =
            (wanted(Some(memory), needs.pages), wanted(disk.as_deref(), needs.disk));
        check(pages + its_disk).map_err(|why| {
            let mib = ((pages + its_disk) * CHUNK_BYTES).div_ceil(1 << 20);
            format!("to go on beside its forks, it needs {mib} MiB more; {why}")
        })?;
        let heap = Guaranteed::try_new(Needs::frozen(&machine.plan) as usize);
        let heap = heap.map_err(|_| NO_HEAP)?;
        let layer = |memory: &GuestMemory, chunks| {
            if memory.is_alone_over_image() {
                return Ok(None);
            }
            let heap = Needs::of_pieces(memory.layer_bytes()) as u64;
            let share = Share::admit(&machine.account, chunks, heap)?;
            let layer = GuestMemory::try_new(World::of(&share), memory.bytes());
            Ok::<_, String>(Some(Arc::new(layer.map_err(|_| NO_HEAP)?)))
        };
        let memory = layer(memory, needs.pages)?;
        let disk = disk.as_deref().map_or(Ok(None), |disk| layer(disk, needs.disk))?;
        Ok(Self { memory, disk, _heap: heap })
    }

    /// Whether what it is guaranteed is there. If not, VMs that have borrowed it are being ended: to be called again.
    pub(crate) fn is_active(&self) -> bool {
        let layers = [&self.memory, &self.disk].into_iter().flatten();
        layers.filter_map(|layer| layer.world().share()).all(|share| share.activate())
    }
}

/// How many chunks a memory is to be guaranteed, which needs so many when it begins.
fn wanted(memory: Option<&GuestMemory>, needs: u64) -> u64 {
    if memory.is_some_and(|memory| !memory.is_alone_over_image()) { needs } else { 0 }
}

/// What the monitor asks the thread of a VM for, and what that answers.
pub(crate) struct Asked {
    state: SpinLock<State>,
    /// How often it was answered.
    answers: AtomicU32,
}

enum State {
    Nothing,
    /// The VM is to be forked, as soon as its run has stopped.
    Room(Room),
    /// Its thread is about to.
    Taken,
    Done(Result<Arc<Template>, String>),
}

impl Asked {
    pub(super) fn new() -> Self {
        Self { state: SpinLock::new(State::Nothing), answers: AtomicU32::new(0) }
    }

    fn replace(&self, next: State) -> State {
        core::mem::replace(&mut *self.state.lock(), next)
    }

    /// Asks the VM's thread.
    pub(super) fn ask(&self, room: Room) {
        drop(self.replace(State::Room(room)));
    }

    /// Takes what was asked for, if anything was: it is [answered](Asked::answer) then.
    pub(super) fn take(&self) -> Option<Room> {
        let mut state = self.state.lock();
        match core::mem::replace(&mut *state, State::Taken) {
            State::Room(room) => Some(room),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Answers.
    pub(super) fn answer(&self, answer: Result<Template, String>) {
        drop(self.replace(State::Done(answer.map(Arc::new))));
        self.answers.fetch_add(1, Ordering::Release);
        threads::wake(&self.answers);
    }

    /// How often it was answered.
    pub(crate) fn seen(&self) -> u32 {
        self.answers.load(Ordering::Acquire)
    }

    /// Waits until it was answered more often than that, or until the deadline.
    pub(crate) fn wait(&self, seen: u32, deadline: u64) {
        threads::wait(&self.answers, seen, deadline);
    }

    /// The answer, once it is there. Where nobody has taken what was asked for, and `is_over` says that nobody will, that is
    /// the answer, and nothing is asked for any more.
    pub(crate) fn answered(
        &self,
        is_over: impl FnOnce() -> bool,
    ) -> Option<Result<Arc<Template>, String>> {
        let mut state = self.state.lock();
        let is_over = match &*state {
            State::Done(_) | State::Nothing => true,
            State::Taken => false,
            State::Room(_) => is_over(),
        };
        if !is_over {
            return None;
        }
        let last = core::mem::replace(&mut *state, State::Nothing);
        drop(state);
        match last {
            State::Done(answer) => Some(answer),
            _ => Some(Err(HAS_ENDED.into())),
        }
    }
}

/// What is kept of a run whose threads have ended, and which goes on over it: all that others need to begin as it is. With that
/// comes what the VM had mapped. It is to be dropped before the run goes on, and after the monitor has its answer: the
/// reclaimer is woken by it, and would come first.
///
/// # Errors
///
/// Why it cannot be kept. The run goes on all the same.
#[inline(never)]
pub(super) fn keep<'a, F: TableFormat>(
    vm: &'a Vm<Kinds<F>>,
    machine: &Machine,
    run: &Run,
    memory: &Arc<GuestMemory>,
    room: Room,
    virtual_count: u64,
) -> Result<(Template, GoingOver<'a, Kinds<F>>), String> {
    let console = machine.uart.stop();
    let Some(vcpus) = stopped(run) else {
        // Nothing can go on as that vCPU was.
        run.end(End::Failed);
        return Err(NOT_AT_REST.into());
    };
    let disk = machine.disk_memory();
    let (below, disk_below) = (room.memory.is_none(), room.disk.is_none());
    // It may have restarted since it was looked at, and have another memory.
    let is_other = |below, memory: &GuestMemory| below && !memory.is_alone_over_image();
    if is_other(below, memory) || disk.as_deref().is_some_and(|disk| is_other(disk_below, disk)) {
        return Err(HAS_ENDED.into());
    }
    let image = room.memory.or_else(|| memory.image()).ok_or(HAS_ENDED)?;
    let disk_image = disk.as_deref().and_then(|disk| room.disk.or_else(|| disk.image()));
    let bytes = if below { image.heap_bytes() } else { memory.heap_bytes() };
    let model = model(machine, run, disk_image.clone(), console, vcpus, virtual_count)?;
    let template = Template::try_new((Arc::clone(&image), bytes), disk_image.clone(), model);
    let template = template.ok_or(NO_HEAP)?;
    let disks = disk.as_deref().zip(disk_image.as_ref());
    let its_disk = disks.map(|(disk, _)| (disk, disk_below));
    admit([Some((&**memory, below)), its_disk])?;
    let going_over = vm.invalidate_all();
    // SAFETY: the threads that use it wait, or have ended; others ask for its frames alone. No CPU uses what was mapped, and
    // nobody writes to the image from now on: nobody else has it, or it was just made.
    unsafe { go_over(memory, &image, below) }?;
    if let Some((disk, image)) = disks {
        // SAFETY: as above; it is mapped nowhere.
        unsafe { go_over(disk, image, disk_below) }?;
    }
    machine.goes_on_in(run, memory.world());
    Ok((template, going_over))
}

/// Has what these memories have stay guaranteed: as part of the image below one, which takes it up, or as an image. Either of
/// all, or of none.
///
/// What an image is to take up comes first, as that can be taken back. What is an image is guaranteed no more than it uses from
/// then on, which cannot: others may have been guaranteed the rest by then. Only the first of those, a VM's memory, may be above
/// its guarantee, so that this fails. A disk never is.
fn admit(memories: [Option<(&GuestMemory, bool)>; 2]) -> Result<(), String> {
    let those = |are_below| {
        let memories = memories.into_iter().flatten();
        memories.filter(move |(_, below)| *below == are_below).map(|(memory, _)| memory)
    };
    let keep = |memory: &GuestMemory| memory.world().share().is_none_or(|share| share.keep());
    let admitted = those(true).try_for_each(admit_to_image).and_then(|()| {
        let kept = those(false).all(keep);
        if kept { Ok(()) } else { Err("what it has is guaranteed to others".into()) }
    });
    if admitted.is_err() {
        those(true).for_each(GuestMemory::settle_image);
    }
    admitted
}

fn admit_to_image(memory: &GuestMemory) -> Result<(), String> {
    memory.admit_to_image().map_err(|chunks| {
        let mib = (chunks * CHUNK_BYTES).div_ceil(1 << 20);
        let why = check(chunks).err().unwrap_or_else(|| "others have borrowed it".into());
        format!("what it has written since it was forked last is {mib} MiB, which cannot be guaranteed to its image; {why}")
    })
}

/// Has what `memory` has be in `image`: in the one that is below it already, or in one that had nothing.
///
/// # Safety
///
/// As [`GuestMemory::leave`] or [`GuestMemory::sink`].
unsafe fn go_over(
    memory: &GuestMemory,
    image: &Arc<GuestMemory>,
    below: bool,
) -> Result<(), &'static str> {
    if below {
        // SAFETY: as the caller promises.
        return unsafe { memory.sink() }.map_err(|_| NO_MEMORY);
    }
    // SAFETY: as the caller promises.
    unsafe { memory.leave(image) };
    Ok(())
}

/// Takes what each vCPU has left, and has the run go on with that. None, if one has left nothing.
fn stopped(run: &Run) -> Option<Vec<Arc<Stopped>>> {
    if run.stopped.lock().iter().any(Option::is_none) {
        return None;
    }
    let mut vcpus = Vec::with_capacity(run.power.len());
    for number in 0..run.power.len() {
        vcpus.push(freeze::left(run, number)?);
        threads::preemption_point();
    }
    let resumed = vcpus.iter().map(|vcpu| Some(Arc::clone(vcpu))).collect();
    let before = core::mem::replace(&mut *run.resumed.lock(), resumed);
    drop(before);
    Some(vcpus)
}

fn model(
    machine: &Machine,
    run: &Run,
    disk: Option<Arc<GuestMemory>>,
    console: SerialPort,
    vcpus: Vec<Arc<Stopped>>,
    virtual_count: u64,
) -> Result<Model, &'static str> {
    let plan = &machine.plan;
    let disk = disk.map(|disk| Frames::new(plan.disk, disk));
    let model = Model::of(plan, &run.chipset, &run.devices, disk, console, vcpus, virtual_count);
    model.map_err(|why| match why {
        NotResumed::OutOfMemory => NO_HEAP,
        NotResumed::NotAtRest => NOT_AT_REST,
    })
}

/// Has a run go on that was stopped to be kept, with other threads. Returns whether it does.
pub(super) fn go_on(run: &Run) -> bool {
    run.uart.go_on(run.devices.plug());
    run.devices.go_on();
    run.goes_on()
}
