# What the second vCPU begins with below 1 MiB, where it is copied to.

# From real mode to 64 bits.
    .section .text
    .global low_start, low_end, task_start, task_end, fault_32, task_other, task_stack
    .code16
low_start:
    cli
    lgdtl %cs:low_descriptors - low_start
    movl $0x620, %eax
    movl %eax, %cr4
    movl $0x9000, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx              # EFER.LME
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl $0x80000011, %eax
    movl %eax, %cr0
    ljmpl $0x10, $low_long
low_descriptors:
    .word 0x5f
    .long fuzz_descriptors
low_end:

# From real mode to 32 bits, and from one task to another.
task_start:
    cli
    lgdtl %cs:task_descriptors - task_start
    lidtl %cs:task_gates - task_start
    movl $0x11, %eax
    movl %eax, %cr0
    ljmpl $0x40, $task_32
task_descriptors:
    .word 0x5f
    .long fuzz_descriptors
task_gates:
    .word 0x7ff
    .long fuzz_gates_32
task_end:

    .code32
task_32:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $task_stack, %esp
    movl $0x50, %eax
    ltr %ax
    ljmp $0x58, $0
    # The other has switched back.
    lock incl fuzz_switched_back
# Where exceptions of 32 bits lead, too: to 64 bits.
fault_32:
    cli
    movl $0x620, %eax
    movl %eax, %cr4
    movl $0x9000, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl $0x80000011, %eax
    movl %eax, %cr0
    ljmp $0x10, $low_long
task_other:
    lock incl fuzz_switched
    ljmp $0x50, $0
    jmp fault_32

    .code64
low_long:
    lock incl fuzz_came_back(%rip)
    jmp fuzz_back

    .section .bss
    .balign 16
    .skip 0x1000
task_stack:
