# The start, as PVH has it: protected mode, flat segments, no paging. The first thing is a line on the UART: whatever
# fails after it, one sees that the program was there.

    .section .note.pvh, "a"
    .balign 4
    .long 4, 4, 18              # XEN_ELFNOTE_PHYS32_ENTRY (xen/include/public/elfnote.h)
    .asciz "Xen"
    .long start

    .section .text.start, "ax"
    .code32
    .global start
start:
    cli
    movl $stack_top, %esp
    movl %ebx, told             # what the loader has told
    movl $greeting, %esi
    call print

    # Long mode: CPUID 8000_0001H, EDX bit 29.
    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb 1f
    movl $0x80000001, %eax
    cpuid
    btl $29, %edx
    jnc 1f

    movl %cr4, %eax
    orl $0x20, %eax             # PAE
    movl %eax, %cr4
    movl $top_table, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      # EFER.LME
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax       # PG, PE
    movl %eax, %cr0
    lgdt descriptors_pointer
    ljmp $8, $long

1:  movl $no_long_mode, %esi
    call print
    xorl %eax, %eax             # as where it powers off, to QEMU's device
    movw $0xf4, %dx
    outl %eax, %dx
2:  hlt
    jmp 2b

# Prints the string at ESI.
print:
3:  movb (%esi), %al
    testb %al, %al
    jz 4f
    movw $0x3f8, %dx
    outb %al, %dx
    incl %esi
    jmp 3b
4:  ret

    .code64
long:
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movq $stack_top, %rsp
    xorl %ebp, %ebp
    movl told, %edi
    call x86_begin

    .section .rodata
greeting:
    .asciz "mayfly: x86-64\r\n"
no_long_mode:
    .asciz "mayfly: this CPU has no long mode\r\n"

    .section .data
    .balign 8
descriptors:
    .quad 0
    .quad 0x00209a0000000000    # code of 64 bits
    .quad 0x0000920000000000    # data
descriptors_pointer:
    .word . - descriptors - 1
    .long descriptors

told:
    .quad 0

# The first 4 GiB, as they are, in pages of 2 MiB, until there are tables that say more (`map.rs`).
    .balign 4096
top_table:
    .quad upper_table + 3
    .fill 511, 8, 0
upper_table:
    .quad blocks + 3, blocks + 0x1003, blocks + 0x2003, blocks + 0x3003
    .fill 508, 8, 0
blocks:
    .set block, 0
    .rept 2048
    .quad block + 0x83
    .set block, block + 0x200000
    .endr

    .section .bss
    .balign 4096
# A stack that is too small ends here, where nothing is mapped.
    .global stack_end
stack_end:
    .skip 0x1000
    .skip 0x20000
stack_top:
