# The way back of all exceptions and interrupts, and the way into made-up code.

    .section .text
# Where the vCPU goes on that is its APIC's number: with its own stack, the first tables, and 64 bits.
    .balign 16
    .global fuzz_back, fuzz_settle
fuzz_back:
    cli
    cld
    movl $1, %eax
    cpuid
    shrl $24, %ebx
fuzz_settle:
    andl $1, %ebx
    movl $0x9000, %eax
    movq %rax, %cr3
    movl $0x80000011, %eax
    movq %rax, %cr0
    movl $0x620, %eax           # PAE, OSFXSR, OSXMMEXCPT
    movq %rax, %cr4
    movl $0x400, %eax
    movq %rax, %dr7
    lgdt fuzz_descriptors_pointer(%rip)
    lidt fuzz_gates_pointer(%rip)
    leaq fuzz_stacks + 0x8000(%rip), %rsp
    movl %ebx, %eax
    shlq $15, %rax
    addq %rax, %rsp
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    # By IRET, so that the next NMI comes.
    movq %rsp, %rax
    pushq $0x18
    pushq %rax
    pushq $2
    pushq $0x10
    leaq 1f(%rip), %rax
    pushq %rax
    iretq
1:  movl %ebx, %edi
    xorl %ebp, %ebp
    call fuzz_again
2:  hlt
    jmp 2b

# fuzz_execute(registers in RDI, code in RSI): goes to the code with these registers, all but RSP, and takes interrupts meanwhile.
    .global fuzz_execute
fuzz_execute:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    leaq 1f(%rip), %rax
    pushq %rax
    pushq %rsi
    movq %rdi, %rax
    movq 8(%rax), %rcx
    movq 16(%rax), %rdx
    movq 24(%rax), %rbx
    movq 40(%rax), %rbp
    movq 48(%rax), %rsi
    movq 56(%rax), %rdi
    movq 64(%rax), %r8
    movq 72(%rax), %r9
    movq 80(%rax), %r10
    movq 88(%rax), %r11
    movq 96(%rax), %r12
    movq 104(%rax), %r13
    movq 112(%rax), %r14
    movq 120(%rax), %r15
    movq (%rax), %rax
    sti
    ret
1:  cli
    cld
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret

    .section .data
    .balign 16
fuzz_descriptors_pointer:
    .word 0x5f
    .quad fuzz_descriptors
fuzz_gates_pointer:
    .word 0xfff
    .quad fuzz_gates

    .section .bss
    .balign 4096
fuzz_stacks:
    .skip 2 * 0x8000
