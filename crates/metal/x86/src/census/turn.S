# census_turn(general registers in RDI, ticks in RSI): waits for a gap of so many ticks in the counter, in which another has the
# processor, with these registers, and leaves there what they are then. RAX, RCX and RDX are in use, and RSP.

    .section .text
    .global census_turn
census_turn:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    pushq %rdi
    pushq %rsi
    movq 24(%rdi), %rbx
    movq 40(%rdi), %rbp
    movq 48(%rdi), %rsi
    movq 64(%rdi), %r8
    movq 72(%rdi), %r9
    movq 80(%rdi), %r10
    movq 88(%rdi), %r11
    movq 96(%rdi), %r12
    movq 104(%rdi), %r13
    movq 112(%rdi), %r14
    movq 120(%rdi), %r15
    movq 56(%rdi), %rdi
    rdtsc
    shlq $32, %rdx
    orq %rdx, %rax
1:  movq %rax, %rcx
    rdtsc
    shlq $32, %rdx
    orq %rdx, %rax
    movq %rax, %rdx
    subq %rcx, %rdx
    cmpq (%rsp), %rdx
    jb 1b
    pushq %rdi
    movq 16(%rsp), %rdi
    movq %rbx, 24(%rdi)
    movq %rbp, 40(%rdi)
    movq %rsi, 48(%rdi)
    movq %r8, 64(%rdi)
    movq %r9, 72(%rdi)
    movq %r10, 80(%rdi)
    movq %r11, 88(%rdi)
    movq %r12, 96(%rdi)
    movq %r13, 104(%rdi)
    movq %r14, 112(%rdi)
    movq %r15, 120(%rdi)
    popq 56(%rdi)
    popq %rsi
    popq %rdi
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
