/* powershell.exe: Windows PowerShell.

   Windows: has PowerShell 5.1 at System32\WindowsPowerShell\v1.0\powershell.exe.
   Wine 10.0: has an empty program there, which ends with 0.
   Probe: powershell.

   Starts PowerShell 7 of C:\Program Files\PowerShell\7 with the same words and scripts allowed, which
   on a Windows node the image's policy allows. */
#include <windows.h>

#include <stdio.h>

#define PROGRAM L"C:\\Program Files\\PowerShell\\7\\pwsh.exe"

int wmain(void)
{
    static WCHAR command[32768];
    WCHAR *words = GetCommandLineW();
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    DWORD code = ERROR_PROCESS_ABORTED;
    BOOL quoted = FALSE;

    for (; *words && (quoted || (*words != L' ' && *words != L'\t')); words++)
        if (*words == L'"')
            quoted = !quoted;
    _snwprintf(command, ARRAYSIZE(command) - 1, L"\"" PROGRAM L"\" -ExecutionPolicy Bypass%ls", words);
    if (!CreateProcessW(PROGRAM, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process)) {
        fprintf(stderr, "powershell: cannot start '%ls': error %lu\n", PROGRAM, GetLastError());
        return (int)GetLastError();
    }
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
