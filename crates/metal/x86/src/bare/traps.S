# A vector each 16 bytes: the error code, or zero in its place, and the number; then all registers, for `mayfly_x86_trap`.

    .section .text
    .balign 16
    .global mayfly_x86_vectors
mayfly_x86_vectors:
    .set number, 0
    .rept 88
    .balign 16
    .if (number == 8) || ((number >= 10) && (number <= 14)) || (number == 17) || (number == 21)
    .else
    pushq $0
    .endif
    pushq $number
    jmp mayfly_x86_trapped
    .set number, number + 1
    .endr

mayfly_x86_trapped:
    cld
    pushq %r15
    pushq %r14
    pushq %r13
    pushq %r12
    pushq %r11
    pushq %r10
    pushq %r9
    pushq %r8
    pushq %rbp
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %rbx
    pushq %rax
    movq %rsp, %rdi
    call mayfly_x86_trap
    popq %rax
    popq %rbx
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    popq %rbp
    popq %r8
    popq %r9
    popq %r10
    popq %r11
    popq %r12
    popq %r13
    popq %r14
    popq %r15
    addq $16, %rsp
    iretq
