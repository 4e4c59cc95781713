/* shutdown.exe: restarts the machine or switches it off.

   Windows: does what /r or /s says; "/a" with nothing to abort ends with 1116.
   Wine 10.0: ends with 0 and does nothing.
   Probe: shutdown.

   The node's Linux does it, through hybridlab-task.exe (lab/windows/wine/runtime/tasks.py), at once:
   a delay (/t) is left out. */
#include <windows.h>

#include <stdio.h>
#include <string.h>

static BOOL has(int count, WCHAR **words, WCHAR option)
{
    int at;

    for (at = 1; at < count; at++)
        if ((words[at][0] == L'/' || words[at][0] == L'-') && (words[at][1] | 32) == option && !words[at][2])
            return TRUE;
    return FALSE;
}

int wmain(int count, WCHAR **words)
{
    WCHAR command[] = L"C:\\windows\\system32\\hybridlab-task.exe power restart";
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    DWORD code = ERROR_PROCESS_ABORTED;

    if (has(count, words, L'a'))
        return ERROR_NO_SHUTDOWN_IN_PROGRESS;
    if (!has(count, words, L'r') && !has(count, words, L's')) {
        fprintf(stderr, "shutdown: /r restarts the machine, /s switches it off\n");
        return ERROR_BAD_ARGUMENTS;
    }
    if (has(count, words, L's'))
        wcscpy(wcsrchr(command, L' ') + 1, L"off");
    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process))
        return (int)GetLastError();
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
