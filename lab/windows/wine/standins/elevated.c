/* elevated.exe PROGRAM ARGUMENTS...: runs a program with an administrator's full rights.

   Windows: a shell of an administrator over SSH or WinRM has full rights (no split token there).
   Wine 10.0: programs have the limited half of the token: kubeadm says "[ERROR IsPrivilegedUser]".
   A program whose manifest asks for requireAdministrator gets the full one, and what it starts
   inherits it.
   Probe: elevation.

   Its own manifest (elevated.manifest) asks for it. Ends as the program ends; 250 if it cannot start
   it. */
#include <windows.h>

#include <stdio.h>

int wmain(void)
{
    static WCHAR command[32768];
    WCHAR *words = GetCommandLineW();
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    DWORD code = 251;
    BOOL quoted = FALSE;

    for (; *words && (quoted || (*words != L' ' && *words != L'\t')); words++)
        if (*words == L'"')
            quoted = !quoted;
    while (*words == L' ' || *words == L'\t')
        words++;
    wcsncpy(command, words, ARRAYSIZE(command) - 1);
    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process)) {
        code = GetLastError();
        command[wcscspn(command, L" ")] = 0;
        if (code != ERROR_FILE_NOT_FOUND && code != ERROR_PATH_NOT_FOUND) {
            fprintf(stderr, "cannot start '%ls': error %lu\n", command, code);
            return 250;
        }
        fprintf(stderr, "'%ls' is not recognized as an internal or external command,\n"
                        "operable program or batch file.\n", command);
        return 1;
    }
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
