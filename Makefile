# Everything a person needs to build, run and check Mayfly. Each command first makes what it needs present
# (scripts/setup), the Rust toolchain included; when it is all there, that takes no time.

.DEFAULT_GOAL := help
.PHONY: help run test dist figures trace-score laws-score open-score trace-overhead crosscheck compare-check mutants miri fuzz soak bench instructions kernels metal metal-test metal-run metal-load metal-fuzz metal-serve metal-fork metal-merge metal-cuts switches api doc fmt clean setup setup-bench setup-instructions setup-kernels setup-metal setup-review setup-test

# rustup may have put cargo where the shell does not look yet.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# What `make run` passes on to `mayfly run`: make run ARGS="device-registration --vms 20"
ARGS ?=

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

run: setup ## build Mayfly and run its experiments; ARGS="..." goes to `mayfly run`
	@cargo run --release --package mayfly-cli --bin mayfly -- run $(ARGS)

test: setup-test ## check everything: formatting, lints, tests, docs, no_std, model checking
	@scripts/test

mutants: setup ## leave out each step of the protocols in turn, and see that a test misses it
	@cargo test --package mayfly-machine --test mutants -- --ignored --nocapture without_any_one_step

miri: setup ## have Miri interpret tests, looking for undefined behaviour; some minutes
	@scripts/miri

# How many random cases `make fuzz` tries of each property: make fuzz CASES=1000000. A case that fails is kept, as a seed, in
# a file beside its test, and tried first from then on.
CASES ?= 20000

fuzz: setup ## try random guests, drivers, frames, requests, syndromes, traces, saved states and programs without unsafe; some minutes
	@PROPTEST_CASES=$(CASES) cargo test --release --package mayfly-state --package mayfly-vgic --package mayfly-vapic --package mayfly-x86-decode --package mayfly-devices --package mayfly-dispatch --package mayfly-arm64
	@PROPTEST_CASES=$(CASES) cargo test --release --package mayfly-hypervisor --test state
	@PROPTEST_CASES=$(CASES) cargo test --release --package mayfly-hypervisor --lib control::
	@PROPTEST_CASES=$(CASES) cargo test --release --package mayfly-vm --test dirty_rounds
	@PROPTEST_CASES=$(CASES) cargo test --release --package mayfly-machine --test hwtrace
	@CASES=$(CASES) scripts/sanitized

# How many seconds `make soak` lasts: make soak MAYFLY_SOAK=60. MAYFLY_SEED=... repeats the choices of a run.
MAYFLY_SOAK ?= 600

soak: setup ## change guests' memory for ten minutes in every way at once, and check what they read
	@MAYFLY_SOAK=$(MAYFLY_SOAK) cargo test --release --package mayfly-machine --test soak -- --nocapture

# How many runs the score is of, by ptrace and by tracefs; MAYFLY_SEED=... repeats the choices of one.
MAYFLY_SCORE ?= 200
MAYFLY_SCORE_TRACEFS ?= 40

trace-score: setup ## plant causes at random in a VMM, and see how many `mayfly trace` names rightly
	@cargo build --quiet --package mayfly-trace --example planted
	@MAYFLY_SCORE=$(MAYFLY_SCORE) cargo test --package mayfly-trace --test planted -- causes_that_are_planted
	@MAYFLY_SCORE=$(MAYFLY_SCORE_TRACEFS) MAYFLY_RECORDER=tracefs \
		cargo test --package mayfly-trace --test planted -- causes_that_are_planted

# How many programs are drawn for each recorder; MAYFLY_SEED=... repeats the choices of one.
MAYFLY_OPEN ?= 400

open-score: setup ## draw programs at random that wait, and see which waits `mayfly trace` lists, and names rightly
	@cargo build --quiet --package mayfly-trace --example composed
	@failed=; for recorder in ptrace tracefs; do \
		MAYFLY_OPEN=$(MAYFLY_OPEN) MAYFLY_RECORDER=$$recorder \
			cargo test --package mayfly-trace --test planted -- waits_of_programs_that || failed=yes; \
	done; [ -z "$$failed" ]

# How many times twenty laws are planted; MAYFLY_SEED=... begins with another seed.
MAYFLY_LAWS ?= 5

laws-score: setup ## plant twenty laws in a KVM that is not there, and see how many `mayfly laws` finds; some minutes
	@cargo build --quiet --package mayfly-cli --example fake_kvm
	@MAYFLY_SCORE=$(MAYFLY_LAWS) cargo test --package mayfly-cli --test laws_planted -- \
		--ignored --nocapture of_twenty_laws

trace-overhead: setup ## time the start of a VMM as it is, under strace, and under both recorders of `mayfly trace`
	@scripts/trace-overhead

bench: setup-bench ## measure Mayfly beside its peers
	@cargo bench --package mayfly-bench

# How many runs the figures are of: make figures RUNS=7. FRESH=yes runs all of it again.
RUNS ?= 5
FRESH ?=

figures: setup ## run every experiment five times and write the tables of README and docs; goes on where it was interrupted
	@RUNS=$(RUNS) FRESH=$(FRESH) scripts/figures

crosscheck: setup ## time calls of KVM with a C program that has nothing of Mayfly's, and with Mayfly
	@scripts/crosscheck

compare-check: setup ## see that `mayfly compare` keeps its promise here: ten pairs of runs of one build
	@scripts/compare-check

# A row of which every instruction is shown: make instructions ROW="MMIO exit, read"
ROW ?=

instructions: setup-instructions ## count what the core costs at EL2, in instructions; ROW="..." shows where one row's are
	@scripts/instructions $(if $(ROW),"$(ROW)")

switches: setup-metal ## count what a hypercall and a switch to another vCPU take at EL2, in instructions
	@scripts/switches

# What Mayfly at EL2 runs: KERNEL=... INITRD=... are an arm64 Image and a ramdisk in place of Debian's and a busybox.
KERNEL ?=
INITRD ?=
export KERNEL INITRD

# ARCH=x86_64 has the same under SVM (docs/x86.md), where KERNEL is a bzImage. Targets that are of arm64 alone, and any of them
# with another word, say so before anything is installed.
ARCH ?= arm64
export ARCH
ifneq ($(filter metal metal-test metal-run,$(MAKECMDGOALS)),)
ifeq ($(filter arm64 x86_64,$(ARCH)),)
$(error ARCH is arm64 or x86_64, and not '$(ARCH)')
endif
endif
of_arm64 := $(filter metal-load metal-fuzz metal-serve metal-fork metal-merge metal-cuts,$(MAKECMDGOALS))
ifneq ($(of_arm64),)
ifneq ($(ARCH),arm64)
$(error $(of_arm64) has arm64 alone, and not ARCH='$(ARCH)')
endif
endif

metal: setup-metal ## run Mayfly at EL2 of an arm64 machine that QEMU makes up, with a Linux VM of 4 vCPUs at a shell; ARCH=x86_64 on a PC
	@scripts/metal$(if $(filter x86_64,$(ARCH)),-x86) run

# QUICK=1 boots one VM; without it there are a dozen machines.
QUICK ?=

metal-test: setup-metal ## boot Linux VMs at EL2, end them, and see that nothing was lost; QUICK=1 boots one
	@scripts/metal$(if $(filter x86_64,$(ARCH)),-x86,$(if $(QUICK), quick, test))

# FUZZ_SECONDS=60 for less; SEED=... begins the random numbers where those of a run began.
FUZZ_SECONDS ?= 600

metal-fuzz: setup-metal ## ten minutes of a guest that does anything at all, beside Linux VMs that look after their memory and data; ARCH=x86_64 on a PC
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/metal$(if $(filter x86_64,$(ARCH)),-x86) fuzz

metal-run: setup-metal ## count what steps of a VM's life take, Mayfly at EL2 beside KVM on arm64, or with ARCH=x86_64 beside kvm-amd; ARGS="--rounds 1" goes to `mayfly run`
	@scripts/metal-run $(ARGS)

# How many connections `make metal-serve` makes: make metal-serve REQUESTS=300 takes some minutes.
REQUESTS ?= 10000

metal-serve: setup-metal ## give each connection from the host a fork of a Linux at EL2, and see that each answers and is destroyed
	@REQUESTS=$(REQUESTS) scripts/metal serve

# How many forks `make metal-fork` has at once, and how many one after the other: make metal-fork LIVES=100000 takes hours.
FORKS ?= 1000
LIVES ?= 1000

metal-fork: setup-metal ## count what a fork of a VM at EL2 costs, have a thousand answer at once, and print the table with its bounds
	@FORKS=$(FORKS) LIVES=$(LIVES) scripts/metal fork

# How many VMs `make metal-merge` has at once, merged and not.
MERGED ?= 90
ALONE ?= 37

metal-merge: setup-metal ## see how many idle VMs of 128 MiB fit into 2 GiB at EL2, with equal pages merged and without
	@MERGED=$(MERGED) ALONE=$(ALONE) scripts/metal merge

# How often `make metal-cuts` cuts the power: make metal-cuts CUTS=10. SEED=... has the disk lose what it has lost in a run.
CUTS ?= 100

metal-cuts: setup-metal ## cut the power of a machine with Mayfly at EL2 a hundred times, and see that what VMs have flushed is there
	@CUTS=$(CUTS) scripts/metal cuts

metal-load: setup-metal ## ten minutes of load on 8 vCPUs of 2 CPUs, at EL2
	@scripts/metal load

# What `make kernels` passes on: make kernels KERNELS="--arch arm64 6.12 6.18", make kernels KERNELS=--help
KERNELS ?=

kernels: setup-kernels ## run KVM's rows inside other kernels, emulated, oldest to newest; KERNELS="..." says which
	@scripts/kernels/run $(KERNELS)

api: setup-review ## write down the public API of the crates that others take, after a change to it
	@scripts/api write

dist: setup ## make a static binary and a Debian package of the command, in target/dist, and try that
	@scripts/dist

doc: setup ## build the API documentation
	@cargo doc --no-deps

fmt: setup ## format the code
	@cargo fmt --all

clean: ## delete all build output
	@rm -rf target

setup:
	@scripts/setup

setup-bench:
	@scripts/setup bench

setup-instructions: setup
	@scripts/setup instructions

setup-metal: setup
	@scripts/setup metal

setup-kernels: setup
	@scripts/setup kernels

setup-test:
	@scripts/setup test

setup-review:
	@scripts/setup review
