    // The header of a Linux Image: flags for little endian, 4 KiB pages, anywhere in memory.
    .section .text.start, "ax"
    .global start
start:
    b first
    .long 0
    .quad 0
    .quad image_end - . + 16
    .quad 0b1010
    .quad 0
    .quad 0
    .quad 0
    .long 0x644d5241
    .long 0
