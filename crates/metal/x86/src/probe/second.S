# What a second vCPU begins with, in real mode, where it is copied to. It goes to 64 bits by the tables of the first: what they
# are, and where it goes on, is written to its end.

    .section .text
    .global second_start, second_end, second_long
    .code16
second_start:
    cli
    movl $0x20, %eax                    # PAE
    movl %eax, %cr4
    movl %cs:second_tables - second_start, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx              # EFER.LME
    rdmsr
    orl $0x100, %eax
    wrmsr
    lgdtl %cs:second_descriptors - second_start
    movl $0x80000001, %eax              # paging and protection
    movl %eax, %cr0
    ljmpl *%cs:second_place - second_start
second_tables:
    .long 0
second_descriptors:
    .word 0
    .long 0
second_place:
    .long 0
    .word 0x10
second_end:

    .code64
second_long:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    leaq second_top(%rip), %rsp
    xorl %ebp, %ebp
    call second
1:  hlt
    jmp 1b

    .section .bss
    .balign 16
    .skip 0x4000
second_top:
