# mayfly_x86_enter(VMCB in RDI, general registers in RSI, the host's page in RDX)

    .section .text
    .global mayfly_x86_enter
mayfly_x86_enter:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    pushq %rsi
    pushq %rdx
    movq %rdx, %rax
    vmsave %rax
    movq %rdi, %rax
    movq 8(%rsi), %rcx
    movq 16(%rsi), %rdx
    movq 24(%rsi), %rbx
    movq 40(%rsi), %rbp
    movq 56(%rsi), %rdi
    movq 64(%rsi), %r8
    movq 72(%rsi), %r9
    movq 80(%rsi), %r10
    movq 88(%rsi), %r11
    movq 96(%rsi), %r12
    movq 104(%rsi), %r13
    movq 112(%rsi), %r14
    movq 120(%rsi), %r15
    movq 48(%rsi), %rsi
    # No interrupt of the host's between its state and the guest's. Those that come then bring the guest out, for which
    # the host has to take interrupts (APM volume 2, 15.21.4): it does while none can come.
    clgi
    sti
    vmload %rax
    vmrun %rax
    vmsave %rax
    pushq %rsi
    movq 16(%rsp), %rsi
    movq %rcx, 8(%rsi)
    movq %rdx, 16(%rsi)
    movq %rbx, 24(%rsi)
    movq %rbp, 40(%rsi)
    movq %rdi, 56(%rsi)
    movq %r8, 64(%rsi)
    movq %r9, 72(%rsi)
    movq %r10, 80(%rsi)
    movq %r11, 88(%rsi)
    movq %r12, 96(%rsi)
    movq %r13, 104(%rsi)
    movq %r14, 112(%rsi)
    movq %r15, 120(%rsi)
    popq 48(%rsi)
    popq %rax
    vmload %rax
    cli
    stgi
    popq %rsi
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
