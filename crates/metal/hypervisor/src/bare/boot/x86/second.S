# The start of the other processors: in real mode, at the beginning of a page below 1 MiB to which this is copied, by the tables
# of `start.S`. It goes on in long mode, by the program's own tables.

    .set TRAMPOLINE, 0x8000

    .section .text.trampoline, "ax"
    .code16
    .global x86_trampoline
x86_trampoline:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl (TRAMPOLINE + 5f - x86_trampoline)
    movl %cr0, %eax
    andl $0x9fffffff, %eax      # caches are on: neither CD nor NW
    orl $1, %eax                # PE
    movl %eax, %cr0
    ljmpl $24, $(TRAMPOLINE + 1f - x86_trampoline)

    .code32
1:  movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %cr4, %eax
    orl $0x20, %eax             # PAE
    movl %eax, %cr4
    movl $top_table, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      # EFER.LME, EFER.NXE
    rdmsr
    orl $0x900, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax       # PG, PE
    movl %eax, %cr0
    ljmp $8, $2f

    .balign 8
4:  .quad 0
    .quad 0x00209a0000000000    # code of 64 bits
    .quad 0x0000920000000000    # data
    .quad 0x00cf9a000000ffff    # code of 32 bits
5:  .word 5b - 4b - 1
    .long TRAMPOLINE + 4b - x86_trampoline
    .global x86_trampoline_end
x86_trampoline_end:

    .code64
    .section .text
2:  movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movq x86_start, %rdi        # a `Start`
    movq 8(%rdi), %rax
    movq %rax, %cr3
    movq (%rdi), %rsp
    xorl %ebp, %ebp
    call x86_second
    ud2
