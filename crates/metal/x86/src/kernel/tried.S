# What raises exceptions, and is to be told of them.

    .section .text
# Each exception comes here with its number. What is tried names the place to go on at in R15; if it names none, the
# exception is told, and all is over.
    .balign 16
    .global vectors
vectors:
    .set number, 0
    .rept 32
    .balign 16
    pushq $number
    jmp raised
    .set number, number + 1
    .endr
raised:
    popq %rax
    testq %r15, %r15
    jz unexpected
    movq saved_stack(%rip), %rsp
    jmp *%r15

# A debug exception leaves where it goes on, with which flags, and what DR6 says.
    .balign 16
    .global debug
debug:
    movq (%rsp), %rax
    movq %rax, debugged(%rip)
    movq 16(%rsp), %rax
    movq %rax, debugged + 8(%rip)
    movq %dr6, %rax
    movq %rax, debugged + 16(%rip)
    pushq $1
    jmp raised

# The handler of non-maskable interrupts counts them, and those among them that have come while it ran. In the first it has its
# APIC send another, and comes out once more while that waits.
    .balign 16
    .global nmi
nmi:
    pushq %rax
    pushq %rbx
    pushq %rcx
    pushq %rdx
    leaq nmi(%rip), %rax
    cmpq %rax, 32(%rsp)
    jb 1f
    leaq 3f(%rip), %rax
    cmpq %rax, 32(%rsp)
    ja 1f
    incl nmis_nested(%rip)
1:  incl nmis(%rip)
    cmpl $1, nmis(%rip)
    jne 2f
    movl $0xfee00300, %eax
    movl $0x4400, (%rax)
    xorl %eax, %eax
    cpuid
2:  popq %rdx
    popq %rcx
    popq %rbx
    popq %rax
3:  iretq

# try(code in RDI, its RAX in RSI, its RCX in RDX, its RDX in RCX, place for the RAX and RDX that it leaves in R8): calls the
# code, which may end by RET. Returns the number of the exception, or -1.
    .global try_code
try_code:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    pushq %r8
    movq %rsp, saved_stack(%rip)
    leaq 2f(%rip), %r15
    movq %rdi, %r9
    movq %rsi, %rax
    movq %rcx, %r10
    movq %rdx, %rcx
    movq %r10, %rdx
    call *%r9
    popq %r8
    movq %rax, (%r8)
    movq %rdx, 8(%r8)
    movq $-1, %rax
    jmp 3f
2:  popq %r8
3:  popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    cld
    ret

    .section .bss
    .balign 16
saved_stack:
    .quad 0
    .global debugged
debugged:
    .quad 0, 0, 0
    .global nmis, nmis_nested
nmis:
    .long 0
nmis_nested:
    .long 0
