/* sc.exe: verbs that Wine's lacks.

   Windows: "sc config" and "sc failure" change a service, "sc qc" and "sc qfailure" show it.
   Wine 10.0: ends with 1639 and prints nothing for "config" and "qc"; takes "failure" and forgets it.
   Probes: sc-config, sc-failure.

   All other verbs are left to Wine's program, which lies beside as scwine.exe. Failure actions are
   kept in the registry as Windows keeps them; keeper.c carries them out. */
#include <windows.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

enum { INVALID_COMMAND_LINE = 1639 };

static int report(const WCHAR *function, BOOL done)
{
    DWORD error = done ? 0 : GetLastError();

    if (done)
        wprintf(L"[SC] %ls SUCCESS\n", function);
    else
        wprintf(L"[SC] %ls FAILED %lu:\n", function, error);
    return (int)error;
}

static SC_HANDLE open_service(const WCHAR *name, DWORD access)
{
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT);

    return manager ? OpenServiceW(manager, name, access) : NULL;
}

static DWORD start_type(const WCHAR *word)
{
    if (!_wcsicmp(word, L"auto") || !_wcsicmp(word, L"delayed-auto"))
        return SERVICE_AUTO_START;
    if (!_wcsicmp(word, L"demand"))
        return SERVICE_DEMAND_START;
    return !_wcsicmp(word, L"disabled") ? SERVICE_DISABLED : SERVICE_NO_CHANGE;
}

/* "a/b" as a list that ends with an empty name; "/" is the empty list. */
static void split_names(const WCHAR *joined, WCHAR names[2048])
{
    memset(names, 0, 2048 * sizeof *names);
    if (*joined == L'/')
        return;
    wcsncpy(names, joined, 2046);
    for (; *names; names++)
        if (*names == L'/')
            *names = 0;
}

static int config(const WCHAR *service, int count, WCHAR **options)
{
    DWORD start = SERVICE_NO_CHANGE;
    WCHAR *command = NULL, *title = NULL, names[2048];
    BOOL depends = FALSE;
    SC_HANDLE handle;
    int at;

    for (at = 0; at + 1 < count; at += 2) {
        WCHAR *value = options[at + 1];

        if (!_wcsicmp(options[at], L"binPath="))
            command = value;
        else if (!_wcsicmp(options[at], L"DisplayName="))
            title = value;
        else if (!_wcsicmp(options[at], L"start="))
            start = start_type(value);
        else if (!_wcsicmp(options[at], L"depend=")) {
            split_names(value, names);
            depends = TRUE;
        } else
            return INVALID_COMMAND_LINE;
    }
    handle = open_service(service, SERVICE_CHANGE_CONFIG);
    return report(L"ChangeServiceConfig",
                  handle && ChangeServiceConfigW(handle, SERVICE_NO_CHANGE, start, SERVICE_NO_CHANGE,
                                                 command, NULL, NULL, depends ? names : NULL, NULL,
                                                 NULL, title));
}

static int show(const WCHAR *service)
{
    static BYTE buffer[8192];
    QUERY_SERVICE_CONFIGW *read = (void *)buffer;
    static const WCHAR *starts[] = {L"BOOT_START", L"SYSTEM_START", L"AUTO_START", L"DEMAND_START",
                                    L"DISABLED"};
    SC_HANDLE handle = open_service(service, SERVICE_QUERY_CONFIG);
    DWORD needed;
    WCHAR *name;

    if (!handle || !QueryServiceConfigW(handle, read, sizeof buffer, &needed))
        return report(L"QueryServiceConfig", FALSE);
    wprintf(L"[SC] QueryServiceConfig SUCCESS\n\nSERVICE_NAME: %ls\n", service);
    wprintf(L"        TYPE               : %lx\n", read->dwServiceType);
    wprintf(L"        START_TYPE         : %lu   %ls\n", read->dwStartType,
            read->dwStartType < ARRAYSIZE(starts) ? starts[read->dwStartType] : L"");
    wprintf(L"        BINARY_PATH_NAME   : %ls\n", read->lpBinaryPathName);
    wprintf(L"        DISPLAY_NAME       : %ls\n        DEPENDENCIES       : ", read->lpDisplayName);
    for (name = read->lpDependencies; name && *name; name += wcslen(name) + 1)
        wprintf(L"%ls%ls\n", name == read->lpDependencies ? L"" : L"                           : ",
                name);
    wprintf(L"\n        SERVICE_START_NAME : %ls\n",
            read->lpServiceStartName ? read->lpServiceStartName : L"");
    return 0;
}

/* The registry value FailureActions: five numbers, then pairs of action and milliseconds. */
typedef struct {
    DWORD reset_seconds, unused[2], count, actions_offset;
    struct {
        DWORD action, milliseconds;
    } actions[3];
} failure_actions;

static HKEY service_key(const WCHAR *service, REGSAM access)
{
    WCHAR path[512];
    HKEY key = NULL;

    _snwprintf(path, ARRAYSIZE(path) - 1, L"SYSTEM\\CurrentControlSet\\Services\\%ls", service);
    path[ARRAYSIZE(path) - 1] = 0;
    SetLastError(RegOpenKeyExW(HKEY_LOCAL_MACHINE, path, 0, access, &key));
    return key;
}

static DWORD action_of(const WCHAR *word)
{
    static const WCHAR *words[] = {L"", L"restart", L"reboot", L"run"}; /* SC_ACTION_TYPE */
    DWORD number;

    for (number = 1; number < ARRAYSIZE(words); number++)
        if (!_wcsicmp(word, words[number]))
            return number;
    return 0;
}

/* "restart/10000/restart/20000": pairs of action and milliseconds. */
static void read_actions(const WCHAR *text, failure_actions *wanted)
{
    WCHAR words[256], *word, *place;

    wcsncpy(words, text, ARRAYSIZE(words) - 1);
    words[ARRAYSIZE(words) - 1] = 0;
    for (word = wcstok_s(words, L"/", &place); word && wanted->count < ARRAYSIZE(wanted->actions);
         word = wcstok_s(NULL, L"/", &place)) {
        WCHAR *pause = wcstok_s(NULL, L"/", &place);

        wanted->actions[wanted->count].action = action_of(word);
        wanted->actions[wanted->count++].milliseconds = pause ? wcstoul(pause, NULL, 10) : 0;
    }
}

static int failure(const WCHAR *service, int count, WCHAR **options)
{
    failure_actions wanted = {.actions_offset = offsetof(failure_actions, actions)};
    DWORD size;
    HKEY key;
    int at;

    for (at = 0; at + 1 < count; at += 2) {
        if (!_wcsicmp(options[at], L"reset="))
            wanted.reset_seconds = wcstoul(options[at + 1], NULL, 10);
        else if (!_wcsicmp(options[at], L"actions="))
            read_actions(options[at + 1], &wanted);
        else
            return INVALID_COMMAND_LINE;
    }
    size = (DWORD)offsetof(failure_actions, actions) + wanted.count * sizeof wanted.actions[0];
    key = service_key(service, KEY_SET_VALUE);
    if (key)
        SetLastError(RegSetValueExW(key, L"FailureActions", 0, REG_BINARY, (BYTE *)&wanted, size));
    return report(L"ChangeServiceConfig2", key && !GetLastError());
}

static int show_failure(const WCHAR *service)
{
    static const WCHAR *words[] = {L"NONE", L"RESTART", L"REBOOT", L"RUN PROCESS"};
    failure_actions stored = {0};
    DWORD size = sizeof stored, number;
    HKEY key = service_key(service, KEY_QUERY_VALUE);

    if (!key)
        return report(L"QueryServiceConfig2", FALSE);
    RegQueryValueExW(key, L"FailureActions", NULL, NULL, (BYTE *)&stored, &size);
    wprintf(L"[SC] QueryServiceConfig2 SUCCESS\n\nSERVICE_NAME: %ls\n", service);
    wprintf(L"        RESET_PERIOD (in seconds)    : %lu\n", stored.reset_seconds);
    for (number = 0; number < stored.count && number < ARRAYSIZE(stored.actions); number++)
        wprintf(L"        FAILURE_ACTIONS              : %ls -- Delay = %lu milliseconds.\n",
                words[stored.actions[number].action & 3], stored.actions[number].milliseconds);
    return 0;
}

/* Wine's own program, with the same words. */
static int run_other(void)
{
    static WCHAR command[32768];
    WCHAR folder[MAX_PATH], *words = GetCommandLineW();
    STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION process;
    DWORD code = ERROR_PROCESS_ABORTED;
    BOOL quoted = FALSE;

    for (; *words && (quoted || (*words != L' ' && *words != L'\t')); words++)
        if (*words == L'"')
            quoted = !quoted;
    GetSystemDirectoryW(folder, ARRAYSIZE(folder));
    _snwprintf(command, ARRAYSIZE(command) - 1, L"%ls\\scwine.exe%ls", folder, words);
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process))
        return (int)GetLastError();
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}

int wmain(int count, WCHAR **words)
{
    if (count > 2 && !_wcsicmp(words[1], L"config"))
        return config(words[2], count - 3, words + 3);
    if (count > 2 && !_wcsicmp(words[1], L"qc"))
        return show(words[2]);
    if (count > 2 && !_wcsicmp(words[1], L"failure"))
        return failure(words[2], count - 3, words + 3);
    if (count > 2 && !_wcsicmp(words[1], L"qfailure"))
        return show_failure(words[2]);
    return run_other();
}
