# The tiny guest that shows whether an accelerator really works: a boot sector.
#
# It does what kernels and firmware do and a doubtful accelerator cannot: x87 and SSE outside
# of paging, long mode, and a timer interrupt. Before each stage it says the stage's letter on
# the first serial port, and at the end "works". trial.bin is this, assembled:
#
#   as --64 -o trial.o trial.S && ld -m elf_x86_64 --oformat binary -Ttext 0x7c00 -o trial.bin trial.o
#
# The stages are named in lab/providers/libvirt/trial.py.

        .intel_syntax noprefix
        .equ SERIAL, 0x3f8
        .equ TABLES, 0x1000             # page tables: three pages from here on
        .equ INTERRUPTS, 0x5000         # interrupt descriptors: 16 of 16 bytes

        .macro stage letter
        mov     al, \letter
        mov     dx, SERIAL
        out     dx, al
        .endm

        .code16
        .globl _start
_start: ljmp    0, offset real
real:   cli
        cld
        xor     ax, ax
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     sp, 0x7c00
        stage   'R'                     # real mode
        in      al, 0x92                # address line 20
        or      al, 2
        and     al, 0xfe
        out     0x92, al
        lgdt    [gdt_pointer]
        mov     eax, cr0
        or      eax, 1
        mov     cr0, eax
        ljmp    8, offset protected

        .code32
protected:
        mov     ax, 16
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        stage   'P'                     # protected mode
        mov     eax, cr0
        and     eax, 0xfffffff3         # no emulation, nothing switched away
        or      eax, 2                  # monitor the coprocessor
        mov     cr0, eax
        stage   'F'                     # floating point
        fninit
        fld1
        fld1
        faddp
        fistp   dword ptr [0x6000]
        cmp     dword ptr [0x6000], 2
        jne     dead
        stage   'S'                     # SSE2
        mov     eax, cr4
        or      eax, 0x620              # PAE, FXSR, SSE exceptions
        mov     cr4, eax
        mov     eax, 21
        cvtsi2sd xmm0, eax
        addsd   xmm0, xmm0
        cvtsd2si eax, xmm0
        cmp     eax, 42
        jne     dead
        stage   'L'                     # long mode
        mov     edi, TABLES
        mov     cr3, edi
        xor     eax, eax
        mov     ecx, 0xc00
        rep stosd
        mov     dword ptr [TABLES], TABLES + 0x1003
        mov     dword ptr [TABLES + 0x1000], TABLES + 0x2003
        mov     dword ptr [TABLES + 0x2000], 0x83
        mov     ecx, 0xc0000080         # EFER
        rdmsr
        or      eax, 0x100
        wrmsr
        mov     eax, cr0
        or      eax, 0x80000000
        mov     cr0, eax
        ljmp    24, offset long_mode
dead:   hlt
        jmp     dead

        .code64
long_mode:
        mov     ax, 16
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     esp, 0x7c00
        xor     eax, eax
        cpuid
        stage   'T'                     # the timer's interrupt, where the BIOS left it: 8
        mov     edi, INTERRUPTS + 8 * 16
        mov     dword ptr [rdi], offset tick + (24 << 16)
        mov     dword ptr [rdi + 4], 0x8e00
        mov     qword ptr [rdi + 8], 0
        lidt    [idt_pointer]
        mov     al, 0x36                # channel 0, a square wave of 1,000 Hz
        out     0x43, al
        mov     al, 0xa9
        out     0x40, al
        mov     al, 0x04
        out     0x40, al
        mov     al, 0xfe                # let nothing but the timer through
        out     0x21, al
        xor     ebx, ebx
        sti
again:  hlt
        cmp     ebx, 3
        jb      again
        cli
        mov     esi, offset works
        mov     ecx, offset works_end - works
        mov     dx, SERIAL
        rep outsb
rest:   hlt
        jmp     rest
tick:   inc     ebx
        push    rax
        mov     al, 0x20                # end of interrupt
        out     0x20, al
        pop     rax
        iretq

works:  .ascii  "works\n"
works_end:
        .align  8
gdt:    .quad   0
        .quad   0x00cf9a000000ffff      # 8: code, 32 bits
        .quad   0x00cf92000000ffff      # 16: data
        .quad   0x00af9a000000ffff      # 24: code, 64 bits
gdt_pointer:
        .word   . - gdt - 1
        .long   gdt
idt_pointer:
        .word   16 * 16 - 1
        .quad   INTERRUPTS

        .org    510
        .word   0xaa55
