# A bzImage: two sectors that a boot loader reads, and the code, whose entry of 64 bits is at 0x200 in it (Linux,
# Documentation/arch/x86/boot.rst).

    .section .setup, "a"
    .org 0x1f1
    .byte 1                     # sectors behind the first
    .word 0
    .long paragraphs
    .word 0, 0, 0
    .word 0xaa55
    .word 0x6aeb                # a jump over the header
    .ascii "HdrS"
    .word 0x20f                 # the protocol's version
    .long 0
    .word 0, 0
    .byte 0, 1                  # loaded high
    .org 0x22c
    .long 0x7fffffff
    .long 0x1000                # alignment
    .byte 0, 0
    .word 1                     # has an entry of 64 bits
    .long 2047                  # bytes of a command line
    .org 0x258
    .quad 0x1000000             # where it goes
    .long size
    .org 0x400

    .section .text.start, "ax"
    .org 0x200
    .global start
start:
    .set offset, 0
    .irp register, rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
    movq %\register, began_with + offset(%rip)
    .set offset, offset + 8
    .endr
    leaq stack_top(%rip), %rsp
    xorl %ebp, %ebp
    movl 0x228(%rsi), %edi      # the command line
    call begin
1:  hlt
    jmp 1b

    .section .bss
    .balign 16
# What was in the general registers at first.
    .global began_with
began_with:
    .skip 16 * 8
    .skip 0x4000
stack_top:
