/* powershell.exe: Windows PowerShell.

   Windows: has PowerShell 5.1 at System32\WindowsPowerShell\v1.0\powershell.exe.
   Wine 10.0: has an empty program there, which ends with 0.
   Probe: powershell.

   Starts PowerShell 7 of C:\Program Files\PowerShell\7 with the same words. Words that are no option
   are a command for Windows PowerShell and a file for PowerShell 7: -Command is put before them. .NET
   does not load the DLL by which stand-ins come (loader.c), so it is loaded into the new process
   first. */
#include <windows.h>

#include <stdio.h>
#include <string.h>

#define PROGRAM L"C:\\Program Files\\PowerShell\\7\\pwsh.exe"

/* Where the first word that is neither an option nor an option's value begins; the end, if none. */
static const WCHAR *first_command_word(const WCHAR *words)
{
    static const WCHAR *valued[] = {L"ExecutionPolicy", L"ex",                L"exec",
                                    L"ep",              L"InputFormat",       L"OutputFormat",
                                    L"Version",         L"WindowStyle",       L"w",
                                    L"PSConsoleFile",   L"ConfigurationName", L"WorkingDirectory"};
    static const WCHAR *last[] = {L"Command", L"c", L"File", L"f", L"EncodedCommand", L"e", L"ec"};
    size_t length, number;
    BOOL value = FALSE;

    for (;; words += length) {
        while (*words == L' ' || *words == L'\t')
            words++;
        length = wcscspn(words, L" \t");
        if (!length || (*words != L'-' && *words != L'/' && !value))
            return words;
        value = FALSE;
        for (number = 0; number < ARRAYSIZE(last); number++)
            if (wcslen(last[number]) == length - 1 && !_wcsnicmp(words + 1, last[number], length - 1))
                return words + wcslen(words); /* all that follows is its own */
        for (number = 0; number < ARRAYSIZE(valued); number++)
            if (wcslen(valued[number]) == length - 1 &&
                !_wcsnicmp(words + 1, valued[number], length - 1))
                value = TRUE;
    }
}

/* Have a new process load a DLL before it runs; without the DLL it runs as it is. */
static void load_into(HANDLE process, const char *library)
{
    SIZE_T size = strlen(library) + 1;
    void *name = VirtualAllocEx(process, NULL, size, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    HANDLE thread = NULL;

    if (name && WriteProcessMemory(process, name, library, size, NULL))
        thread = CreateRemoteThread(process, NULL, 0, (void *)LoadLibraryA, name, 0, NULL);
    if (thread) {
        WaitForSingleObject(thread, 10000);
        CloseHandle(thread);
    }
}

int wmain(void)
{
    static WCHAR command[32768];
    WCHAR *words = GetCommandLineW();
    const WCHAR *rest;
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    DWORD code = ERROR_PROCESS_ABORTED;
    BOOL quoted = FALSE;

    for (; *words && (quoted || (*words != L' ' && *words != L'\t')); words++)
        if (*words == L'"')
            quoted = !quoted;
    rest = first_command_word(words);
    _snwprintf(command, ARRAYSIZE(command) - 1, L"\"" PROGRAM L"\"%.*ls%ls%ls",
               (int)(rest - words), words, *rest ? L" -Command " : L"", rest);
    if (!CreateProcessW(PROGRAM, command, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start,
                        &process)) {
        fprintf(stderr, "powershell: cannot start '%ls': error %lu\n", PROGRAM, GetLastError());
        return (int)GetLastError();
    }
    load_into(process.hProcess, "bcryptprimitives.dll");
    ResumeThread(process.hThread);
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
