/* bcryptprimitives.dll: how stand-ins get into programs.

   Windows: has ProcessPrng, from which Go's runtime takes random numbers. Every Go program loads it
   before anything of its own runs.
   This Wine: the same, by a DLL of its own. It has no setting by which a DLL is loaded into every
   program (AppInit_DLLs is read by nobody).
   Windows and Wine: Go stops a goroutine that runs for long by SuspendThread, and a program whose
   service is told to stop within its first second may then wait for itself for ever, with one thread
   that calls SwitchToThread (a kubelet did, here; golang/go issue 80665 for Windows).
   Probe: none; it is used when one of the stand-ins that it loads is.

   It tells Go not to do that, unless GODEBUG says something about it (asyncpreemptoff).

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

/* Go reads GODEBUG after it has loaded this DLL. */
static void leave_threads_running(void)
{
    static const char setting[] = "asyncpreemptoff=1";
    char value[1024], both[sizeof value + sizeof setting + 1];
    DWORD length = GetEnvironmentVariableA("GODEBUG", value, sizeof value);

    if (length >= sizeof value || (length && strstr(value, "asyncpreemptoff=")))
        return;
    snprintf(both, sizeof both, "%s%s%s", setting, length ? "," : "", length ? value : "");
    SetEnvironmentVariableA("GODEBUG", both);
}

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    char line[MAX_PATH];
    FILE *list;

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH)
        return TRUE;
    leave_threads_running();
    if (!(list = fopen(STANDINS, "r")))
        return TRUE;
    while (fgets(line, sizeof line, list)) {
        line[strcspn(line, "\r\n")] = 0;
        if (*line)
            LoadLibraryA(line);
    }
    fclose(list);
    return TRUE;
}
