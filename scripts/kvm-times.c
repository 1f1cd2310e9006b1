/*
 * Times calls of KVM without anything of Mayfly: the first memslot of a VM that has devices, the deletion of a memslot beside
 * a running vCPU, the end of a VM, the end of one right after a registration, the removal of an ioeventfd right after a
 * registration, and the start of dirty logging. Three more are timed where there are so many of something: the creation of
 * a VM beside mappings, and the ends of a VM with vCPUs and of one with memslots. scripts/crosscheck holds what it says against
 * `mayfly run`, `mayfly doctor` and `mayfly laws`.
 *
 *     cc -O2 -pthread -o kvm-times scripts/kvm-times.c && ./kvm-times first-memslot 100
 *
 * Prints the name, how often it was timed, and the shortest, the median and the longest in nanoseconds. x86-64 alone: the
 * guest is a few instructions in 64-bit mode, ring 3 (where a host switches in software, ring 0 is emulated).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define PAGE 4096ull
/* The guest's page tables: a PML4, a PDPT, and four directories of blocks of 2 MiB. Its code is behind them. */
#define PML4 0x10000ull
#define PDPT 0x11000ull
#define DIRECTORIES 0x12000ull
#define CODE 0x16000ull
#define FREE MIB
/* Where the slot is that is deleted. */
#define SLOT 0xc0000000ull
#define PORT 0x510
/* ioeventfds, a page each, and the one that running vCPUs write to. */
#define EVENTS 0xe0000000ull
#define DOORBELL 0xd0000000ull
#define DEVICES 8
#define TICK 4e6

#define CHECK(call)                                                                                                    \
    ({                                                                                                                 \
        long result_ = (long)(call);                                                                                   \
        if (result_ < 0) {                                                                                             \
            fprintf(stderr, "kvm-times: %s: %s\n", #call, strerror(errno));                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
        result_;                                                                                                       \
    })

static int kvm;
/* How many of something there are. */
static uint64_t many;
static size_t run_size;

static uint64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* Sleeps for a random part of that time, and leaves the processor awake. */
static void pause_within(double nanoseconds)
{
    struct timespec time = {.tv_nsec = (long)(drand48() * nanoseconds)};
    nanosleep(&time, NULL);
    for (uint64_t begin = now(); now() - begin < 50000;)
        ;
}

static char *map(size_t size)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("kvm-times: mmap");
        exit(1);
    }
    return memory;
}

static void set_flags(int vm, unsigned slot, uint64_t gpa, uint64_t size, void *memory, unsigned flags)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot, .flags = flags, .guest_phys_addr = gpa, .memory_size = size, .userspace_addr = (uintptr_t)memory};
    CHECK(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region));
}

static void set_slot(int vm, unsigned slot, uint64_t gpa, uint64_t size, void *memory)
{
    set_flags(vm, slot, gpa, size, memory, 0);
}

/* The ioeventfds that VMs have, and two more: one to be added, and the doorbell's, which is the last. */
static int *events(void)
{
    static int all[DEVICES + 2];
    if (!all[0])
        for (int i = 0; i < DEVICES + 2; i++)
            all[i] = (int)CHECK(eventfd(0, EFD_CLOEXEC));
    return all;
}

static void event(int vm, int index, unsigned flags)
{
    uint64_t address = index > DEVICES ? DOORBELL : EVENTS + (uint64_t)index * PAGE;
    struct kvm_ioeventfd event = {.addr = address, .len = 4, .fd = events()[index], .flags = flags};
    CHECK(ioctl(vm, KVM_IOEVENTFD, &event));
}

/* What the guest does: a pass of writes, one more to r9, and out. */
__asm__(".pushsection .rodata\n"
        "guest_begin:\n"
        "    incq %r8\n"
        "    movq %rdi, %rbx\n"
        "1:  movq %r8, (%rbx)\n"
        "    addq $4096, %rbx\n"
        "    cmpq %rsi, %rbx\n"
        "    jb 1b\n"
        "    movl %r8d, (%r9)\n"
        "    movl %r8d, %eax\n"
        "    outl %eax, %dx\n"
        "    jmp guest_begin\n"
        "guest_end:\n"
        ".popsection\n");
extern const char guest_begin[], guest_end[];

static void install(char *memory)
{
    uint64_t *directories = (uint64_t *)(memory + DIRECTORIES);
    *(uint64_t *)(memory + PML4) = PDPT | 0x27;
    for (uint64_t gib = 0; gib < 4; gib++)
        ((uint64_t *)(memory + PDPT))[gib] = (DIRECTORIES + gib * PAGE) | 0x27;
    for (uint64_t block = 0; block < 4 * 512; block++)
        directories[block] = block << 21 | 0xe7;
    memcpy(memory + CODE, guest_begin, (size_t)(guest_end - guest_begin));
}

struct vcpu {
    int fd;
    struct kvm_run *run;
    _Atomic uint64_t passes;
    atomic_bool stop;
};

static void create_vcpu(struct vcpu *vcpu, int vm, int id, uint64_t begin, uint64_t end, uint64_t last)
{
    static char buffer[sizeof(struct kvm_cpuid2) + 256 * sizeof(struct kvm_cpuid_entry2)];
    struct kvm_cpuid2 *cpuid = (struct kvm_cpuid2 *)buffer;
    struct kvm_sregs sregs;
    struct kvm_mp_state runnable = {.mp_state = KVM_MP_STATE_RUNNABLE};

    vcpu->fd = (int)CHECK(ioctl(vm, KVM_CREATE_VCPU, id));
    vcpu->run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
    if (vcpu->run == MAP_FAILED) {
        perror("kvm-times: mmap of a vCPU");
        exit(1);
    }
    cpuid->nent = 256;
    CHECK(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid));
    CHECK(ioctl(vcpu->fd, KVM_SET_CPUID2, cpuid));
    CHECK(ioctl(vcpu->fd, KVM_GET_SREGS, &sregs));
    struct kvm_segment data = {
        .limit = 0xffffffff, .selector = 0x23, .type = 3, .present = 1, .dpl = 3, .db = 1, .s = 1, .g = 1};
    struct kvm_segment code = data;
    code.selector = 0x2b;
    code.type = 11;
    code.db = 0;
    code.l = 1;
    sregs.cs = code;
    sregs.ss = sregs.ds = sregs.es = sregs.fs = sregs.gs = data;
    sregs.cr0 = 0x80000031;
    sregs.cr3 = PML4;
    sregs.cr4 = 0x20;
    sregs.efer = 0x500;
    CHECK(ioctl(vcpu->fd, KVM_SET_SREGS, &sregs));
    struct kvm_regs regs = {.rip = CODE, .rflags = 0x3002, .rdi = begin, .rsi = end, .rdx = PORT, .r9 = last};
    CHECK(ioctl(vcpu->fd, KVM_SET_REGS, &regs));
    /* Refused where there is no interrupt controller in the kernel; then it is runnable anyway. */
    ioctl(vcpu->fd, KVM_SET_MP_STATE, &runnable);
}

/* One pass of the guest, whatever else it comes out for. */
static void pass(struct vcpu *vcpu)
{
    for (;;) {
        if (ioctl(vcpu->fd, KVM_RUN, 0) < 0 && errno == EINTR)
            continue;
        if (vcpu->run->exit_reason == KVM_EXIT_IO)
            return;
        if (vcpu->run->exit_reason != KVM_EXIT_MMIO) {
            fprintf(stderr, "kvm-times: the guest came out with %u\n", vcpu->run->exit_reason);
            exit(1);
        }
    }
}

static uint64_t first_memslot(void)
{
    static char *memory;
    if (!memory) {
        memory = map(2 * MIB);
        memset(memory, 1, 2 * MIB);
        events();
    }
    pause_within(2 * TICK);
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    CHECK(ioctl(vm, KVM_CREATE_IRQCHIP, 0));
    for (int i = 0; i < DEVICES; i++)
        event(vm, i, 0);
    uint64_t begin = now();
    set_slot(vm, 0, 0, 2 * MIB, memory);
    uint64_t took = now() - begin;
    close(vm);
    return took;
}

static void *go(void *argument)
{
    struct vcpu *vcpu = argument;
    while (!atomic_load(&vcpu->stop)) {
        pass(vcpu);
        atomic_fetch_add(&vcpu->passes, 1);
    }
    return NULL;
}

/* Until the vCPU has done one pass from its beginning to its end. */
static void let_it_run(struct vcpu *vcpu)
{
    uint64_t passes = atomic_load(&vcpu->passes);
    struct timespec time = {.tv_nsec = 50000};
    while (atomic_load(&vcpu->passes) < passes + 2)
        nanosleep(&time, NULL);
}

/* Ends a VM whose vCPU runs in `thread`. */
static void end_vm(int vm, struct vcpu *vcpu, pthread_t thread)
{
    atomic_store(&vcpu->stop, 1);
    pthread_join(thread, NULL);
    munmap(vcpu->run, run_size);
    close(vcpu->fd);
    close(vm);
    atomic_store(&vcpu->stop, 0);
}

/* A VM lives for two deletions, as one of `mayfly run`'s does: the first ones cost more than those of a VM that has had
 * fifty. */
static uint64_t slot_delete_by(clockid_t clock)
{
    static struct vcpu vcpu;
    static char *memory, *slot;
    static pthread_t thread;
    static unsigned deletions;
    static int vm;
    if (!slot) {
        memory = map(8 * MIB);
        memset(memory, 0, 8 * MIB);
        slot = map(2 * MIB);
        memset(slot, 0, 2 * MIB);
        install(memory);
    }
    if (deletions++ % 2 == 0) {
        if (deletions > 1)
            end_vm(vm, &vcpu, thread);
        vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
        CHECK(ioctl(vm, KVM_CREATE_IRQCHIP, 0));
        set_slot(vm, 0, 0, 8 * MIB, memory);
        set_slot(vm, 1, SLOT, 2 * MIB, slot);
        create_vcpu(&vcpu, vm, 0, FREE, FREE + 32 * PAGE, SLOT);
        pthread_create(&thread, NULL, go, &vcpu);
    }
    let_it_run(&vcpu);
    uint64_t begin = read_clock(clock);
    set_slot(vm, 1, SLOT, 0, NULL);
    uint64_t took = read_clock(clock) - begin;
    let_it_run(&vcpu);
    set_slot(vm, 1, SLOT, 2 * MIB, slot);
    return took;
}

static uint64_t slot_delete(void)
{
    return slot_delete_by(CLOCK_MONOTONIC);
}

/* What it takes of the caller's processor, which is the figure where vCPUs and their host share processors. */
static uint64_t slot_delete_cpu(void)
{
    return slot_delete_by(CLOCK_THREAD_CPUTIME_ID);
}

/* Of a VM whose guest has written to each page of a GiB, in pages of 4 KiB. */
static uint64_t end_of_vm(void)
{
    size_t size = 1024 * MIB;
    char *memory = map(size);
    struct vcpu vcpu = {0};
    madvise(memory, size, MADV_NOHUGEPAGE);
    install(memory);
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    set_slot(vm, 0, 0, size, memory);
    create_vcpu(&vcpu, vm, 0, FREE, size, FREE);
    pass(&vcpu);
    uint64_t begin = now();
    munmap(vcpu.run, run_size);
    close(vcpu.fd);
    close(vm);
    uint64_t took = now() - begin;
    munmap(memory, size);
    return took;
}

/* Of a VM with memory, devices and two vCPUs whose last call but the vCPUs' was a registration. */
static uint64_t close_after_registration(void)
{
    static char *memory;
    struct vcpu vcpus[2] = {0};
    if (!memory) {
        memory = map(2 * MIB);
        memset(memory, 0, 2 * MIB);
        events();
    }
    pause_within(TICK);
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    set_slot(vm, 0, 0, 2 * MIB, memory);
    CHECK(ioctl(vm, KVM_CREATE_IRQCHIP, 0));
    for (int i = 0; i < DEVICES; i++)
        event(vm, i, 0);
    for (int id = 0; id < 2; id++) {
        vcpus[id].fd = (int)CHECK(ioctl(vm, KVM_CREATE_VCPU, id));
        vcpus[id].run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpus[id].fd, 0);
    }
    uint64_t begin = now();
    for (int id = 0; id < 2; id++) {
        munmap(vcpus[id].run, run_size);
        close(vcpus[id].fd);
    }
    close(vm);
    return now() - begin;
}

/* While two vCPUs write to an ioeventfd, right after another was added. */
static uint64_t ioeventfd_removed(void)
{
    static char *memory;
    struct vcpu vcpus[2] = {0};
    pthread_t threads[2];
    if (!memory) {
        memory = map(2 * MIB);
        memset(memory, 0, 2 * MIB);
        install(memory);
        events();
    }
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    CHECK(ioctl(vm, KVM_CREATE_IRQCHIP, 0));
    for (int i = 0; i < DEVICES; i++)
        event(vm, i, 0);
    set_slot(vm, 0, 0, 2 * MIB, memory);
    for (int id = 0; id < 2; id++)
        create_vcpu(&vcpus[id], vm, id, FREE, FREE + PAGE, DOORBELL);
    event(vm, DEVICES + 1, 0);
    for (int id = 0; id < 2; id++)
        pthread_create(&threads[id], NULL, go, &vcpus[id]);
    for (int id = 0; id < 2; id++)
        let_it_run(&vcpus[id]);
    /* Waits for what the registrations have started. */
    event(vm, 1, KVM_IOEVENTFD_FLAG_DEASSIGN);
    pause_within(TICK);
    event(vm, DEVICES, 0);
    uint64_t begin = now();
    event(vm, 0, KVM_IOEVENTFD_FLAG_DEASSIGN);
    uint64_t took = now() - begin;
    for (int id = 0; id < 2; id++)
        atomic_store(&vcpus[id].stop, 1);
    for (int id = 0; id < 2; id++) {
        pthread_join(threads[id], NULL);
        munmap(vcpus[id].run, run_size);
        close(vcpus[id].fd);
    }
    close(vm);
    return took;
}

/* Of a slot of 32 MiB, each page of which the guest has written to twice, in pages of 4 KiB. */
static uint64_t dirty_log_start(void)
{
    size_t size = 32 * MIB;
    uint64_t at = 256 * MIB;
    static char *code;
    struct vcpu vcpu = {0};
    if (!code) {
        code = map(2 * MIB);
        memset(code, 0, 2 * MIB);
        install(code);
    }
    char *memory = map(size);
    madvise(memory, size, MADV_NOHUGEPAGE);
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    CHECK(ioctl(vm, KVM_CREATE_IRQCHIP, 0));
    set_slot(vm, 0, 0, 2 * MIB, code);
    set_slot(vm, 1, at, size, memory);
    create_vcpu(&vcpu, vm, 0, at, at + size, at);
    pass(&vcpu);
    pass(&vcpu);
    uint64_t begin = now();
    set_flags(vm, 1, at, size, memory, KVM_MEM_LOG_DIRTY_PAGES);
    uint64_t took = now() - begin;
    munmap(vcpu.run, run_size);
    close(vcpu.fd);
    close(vm);
    munmap(memory, size);
    return took;
}

/* Leaves everything alone until no call waits for an earlier one any more. */
static void settle(void)
{
    struct timespec time = {.tv_nsec = 40000000};
    nanosleep(&time, NULL);
}

/* Beside as many mappings of one page as are said. */
static uint64_t vm_created(void)
{
    char *pages = mmap(NULL, many * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages == MAP_FAILED ? -1 : 0);
    for (uint64_t page = 0; page < many; page += 2)
        CHECK(mprotect(pages + page * PAGE, PAGE, PROT_READ));
    settle();
    uint64_t begin = now();
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    uint64_t took = now() - begin;
    close(vm);
    munmap(pages, many * PAGE);
    return took;
}

/* Of a VM that has as many vCPUs as are said. */
static uint64_t vcpus_closed(void)
{
    int *fds = calloc(many, sizeof(*fds));
    void **runs = calloc(many, sizeof(*runs));
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    for (uint64_t id = 0; id < many; id++) {
        fds[id] = (int)CHECK(ioctl(vm, KVM_CREATE_VCPU, id));
        runs[id] = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[id], 0);
    }
    settle();
    uint64_t begin = now();
    for (uint64_t id = 0; id < many; id++) {
        munmap(runs[id], run_size);
        close(fds[id]);
    }
    close(vm);
    uint64_t took = now() - begin;
    free(fds);
    free(runs);
    return took;
}

/* Of a VM that has as many memslots as are said, all of one page of memory. */
static uint64_t slots_closed(void)
{
    char *page = map(PAGE);
    int vm = (int)CHECK(ioctl(kvm, KVM_CREATE_VM, 0));
    for (uint64_t slot = 0; slot < many; slot++)
        set_slot(vm, (unsigned)slot, slot * 2 * PAGE, PAGE, page);
    settle();
    uint64_t begin = now();
    close(vm);
    uint64_t took = now() - begin;
    munmap(page, PAGE);
    return took;
}

static int order(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        uint64_t (*time)(void);
    } timed[] = {{"first-memslot", first_memslot},
                 {"slot-delete", slot_delete},
                 {"slot-delete-cpu", slot_delete_cpu},
                 {"end-of-vm", end_of_vm},
                 {"close-after-registration", close_after_registration},
                 {"ioeventfd-removed", ioeventfd_removed},
                 {"dirty-log-start", dirty_log_start},
                 {"create-vm/mappings", vm_created},
                 {"close-vm/vcpus", vcpus_closed},
                 {"close-vm/slots", slots_closed}};
    long rounds = count >= 3 ? strtol(arguments[2], NULL, 10) : 0;
    many = count >= 4 ? strtoul(arguments[3], NULL, 10) : 1;
    for (unsigned i = 0; rounds > 0 && rounds <= 100000 && i < sizeof(timed) / sizeof(*timed); i++) {
        if (strcmp(arguments[1], timed[i].name))
            continue;
        uint64_t *took = calloc((size_t)rounds, sizeof(*took));
        kvm = (int)CHECK(open("/dev/kvm", O_RDWR | O_CLOEXEC));
        run_size = (size_t)CHECK(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0));
        srand48((long)now());
        timed[i].time();
        for (long round = 0; round < rounds; round++)
            took[round] = timed[i].time();
        qsort(took, (size_t)rounds, sizeof(*took), order);
        printf("%s %ld %llu %llu %llu\n", timed[i].name, rounds, (unsigned long long)took[0],
               (unsigned long long)took[(rounds - 1) / 2], (unsigned long long)took[rounds - 1]);
        return 0;
    }
    fprintf(stderr, "usage: kvm-times NAME ROUNDS [NUMBER]; names are in this file, in main()\n");
    return 2;
}
