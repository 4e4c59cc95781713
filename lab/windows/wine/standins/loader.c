/* bcryptprimitives.dll: how stand-ins get into programs.

   Windows: has ProcessPrng, from which Go's runtime takes random numbers. Every Go program loads it
   before anything of its own runs.
   This Wine: the same, by a DLL of its own. It has no setting by which a DLL is loaded into every
   program (AppInit_DLLs is read by nobody).
   Probe: none; it is used when one of the stand-ins that it loads is.

   It loads the DLLs that STANDINS names, one a line. Another Wine that needs fewer has a shorter
   list. A DLL that cannot be loaded is left out: the probes find that. */
#include <windows.h>

#include <stdio.h>
#include <string.h>

#define STANDINS "C:\\windows\\system32\\hybridlab-standins.txt"

BOOLEAN NTAPI SystemFunction036(void *buffer, ULONG size); /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *buffer, SIZE_T size)
{
    while (size) {
        ULONG part = size > 0x10000 ? 0x10000 : (ULONG)size;

        if (!SystemFunction036(buffer, part))
            return FALSE;
        buffer += part;
        size -= part;
    }
    return TRUE;
}

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    char line[MAX_PATH];
    FILE *list;

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH || !(list = fopen(STANDINS, "r")))
        return TRUE;
    while (fgets(line, sizeof line, list)) {
        line[strcspn(line, "\r\n")] = 0;
        if (*line)
            LoadLibraryA(line);
    }
    fclose(list);
    return TRUE;
}
