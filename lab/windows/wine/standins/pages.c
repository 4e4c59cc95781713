/* hybridlab-pages.dll: a program's code comes from its file when it is used.

   Windows: maps a program's sections from its file. What is not used takes no memory, and processes
   share the rest.
   Wine 10.0: maps a section only if it begins at a whole page of the file. Others are read into
   memory that each process has for itself: all code of a Go program, 40 MB of kube-proxy.exe.
   Probe: pages.

   FOLDER has NAME.pages, a file with the program's sections where they are in memory
   (lab/windows/wine/pages.py). Where section and file are the same, the file is mapped in the section's
   place. The program itself is not changed. */
#include <windows.h>

#include <string.h>

#define FOLDER "/wine/drive_c/hybridlab/pages/"
#define ENDING ".pages"

/* Linux system calls of x86-64 (asm/unistd_64.h), and their constants. */
enum {
    LINUX_OPEN = 2,
    LINUX_CLOSE = 3,
    LINUX_LSEEK = 8,
    LINUX_MMAP = 9,
    LINUX_MUNMAP = 11,
    LINUX_SEEK_END = 2,
    PROTECT_READ = 1,
    PROTECT_EXECUTE = 4,
    MAP_PRIVATE = 2,
    MAP_FIXED = 16
};
enum { PAGE = 4096 };

static LONG_PTR linux_call(LONG_PTR number, LONG_PTR first, LONG_PTR second, LONG_PTR third,
                           LONG_PTR fourth, LONG_PTR fifth, LONG_PTR sixth)
{
    register LONG_PTR r10 __asm__("r10") = fourth;
    register LONG_PTR r8 __asm__("r8") = fifth;
    register LONG_PTR r9 __asm__("r9") = sixth;
    LONG_PTR result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* Map a section's part of the file: anywhere, or in the section's place. Negative: an error. */
static LONG_PTR map(void *place, SIZE_T size, int protection, LONG_PTR file, DWORD offset)
{
    return linux_call(LINUX_MMAP, (LONG_PTR)place, (LONG_PTR)size, protection,
                      MAP_PRIVATE | (place ? MAP_FIXED : 0), file, offset);
}

static void replace(BYTE *base, const IMAGE_SECTION_HEADER *section, LONG_PTR file, LONG_PTR end)
{
    BYTE *place = base + section->VirtualAddress;
    SIZE_T size = section->Misc.VirtualSize & ~(SIZE_T)(PAGE - 1); /* the last page has more in it */
    int protection = PROTECT_READ;
    LONG_PTR copy;

    if (section->Characteristics & IMAGE_SCN_MEM_WRITE || !(section->PointerToRawData % PAGE) ||
        section->SizeOfRawData < size || !size || section->VirtualAddress + (LONG_PTR)size > end)
        return;
    copy = map(NULL, size, PROTECT_READ, file, section->VirtualAddress);
    if (copy < 0)
        return;
    if (section->Characteristics & IMAGE_SCN_MEM_EXECUTE)
        protection |= PROTECT_EXECUTE;
    if (!memcmp((void *)copy, place, size))
        map(place, size, protection, file, section->VirtualAddress);
    linux_call(LINUX_MUNMAP, copy, (LONG_PTR)size, 0, 0, 0, 0);
}

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    BYTE *base = (BYTE *)GetModuleHandleA(NULL);
    IMAGE_NT_HEADERS64 *headers = (void *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    IMAGE_SECTION_HEADER *section = IMAGE_FIRST_SECTION(headers);
    char path[MAX_PATH], name[sizeof FOLDER + MAX_PATH + sizeof ENDING] = FOLDER, *end;
    LONG_PTR file, size;
    WORD number;

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH || !GetModuleFileNameA(NULL, path, sizeof path))
        return TRUE;
    end = strrchr(path, '\\');
    strcat(name, end ? end + 1 : path);
    strcat(name, ENDING);
    file = linux_call(LINUX_OPEN, (LONG_PTR)name, 0, 0, 0, 0, 0);
    if (file < 0)
        return TRUE;
    size = linux_call(LINUX_LSEEK, file, 0, LINUX_SEEK_END, 0, 0, 0);
    for (number = 0; number < headers->FileHeader.NumberOfSections; number++)
        replace(base, &section[number], file, size);
    linux_call(LINUX_CLOSE, file, 0, 0, 0, 0, 0);
    return TRUE;
}
