/* keeper.exe: what a running Windows does for its services, and Wine's service manager does not.

   Windows: starts services with its own start, after those that they depend on, and carries out a
   service's failure actions. It counts its starts, and has the machine's own UUID. It is on until it
   is shut down.
   Wine 10.0: starts services in any order, so that one that needs another fails; forgets failure
   actions; ends services.exe with the last ordinary program.
   Probes: sc-failure; service-order has none of its own.

   keeper.exe [{UUID}] runs as long as the machine is on. A kubelet tells the number of starts as the
   node's bootID, and the UUID as its systemUUID. Each second it starts the services whose start was automatic
   when the machine was switched on and that have not been started since, if what they depend on runs;
   and starts a failed service again once its pause is over. */
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256, RESTART = 1 };

typedef struct {
    DWORD reset_seconds, unused[2], count, actions_offset;
    struct {
        DWORD action, milliseconds;
    } actions[3];
} failure_actions; /* of the registry value that sc.c writes */

typedef struct {
    WCHAR name[NAME];
    BOOL started;        /* has run since the machine is on, or was made since */
    ULONGLONG failed_at; /* GetTickCount64; 0: it has not failed */
} service;

static service *services;
static int known;
static BOOL is_on; /* after the first look */

static service *find(const WCHAR *name)
{
    service *more;
    int number;

    for (number = 0; number < known; number++)
        if (!_wcsicmp(services[number].name, name))
            return &services[number];
    if (!(more = realloc(services, (known + 1) * sizeof *services)))
        return NULL;
    services = more;
    services[known] = (service){.started = is_on};
    wcsncpy(services[known].name, name, NAME - 1);
    return &services[known++];
}

static BOOL runs(SC_HANDLE manager, const WCHAR *name)
{
    SC_HANDLE handle = OpenServiceW(manager, name, SERVICE_QUERY_STATUS);
    SERVICE_STATUS status = {0};

    if (!handle)
        return FALSE;
    QueryServiceStatus(handle, &status);
    CloseServiceHandle(handle);
    return status.dwCurrentState == SERVICE_RUNNING;
}

static BOOL is_ready(SC_HANDLE manager, HKEY key)
{
    WCHAR names[2048] = {0}, *name;
    DWORD size = sizeof names - 2 * sizeof *names;

    if (RegQueryValueExW(key, L"DependOnService", NULL, NULL, (BYTE *)names, &size))
        return TRUE;
    for (name = names; *name; name += wcslen(name) + 1)
        if (!runs(manager, name))
            return FALSE;
    return TRUE;
}

/* Whether a service that has failed is to be started now. */
static BOOL is_due(HKEY key, const service *failed)
{
    failure_actions stored = {0};
    DWORD size = sizeof stored;

    if (RegQueryValueExW(key, L"FailureActions", NULL, NULL, (BYTE *)&stored, &size) ||
        !stored.count || stored.actions[0].action != RESTART)
        return FALSE;
    return GetTickCount64() - failed->failed_at >= stored.actions[0].milliseconds;
}

static void start(SC_HANDLE handle, service *wanted)
{
    BOOL done = StartServiceW(handle, 0, NULL);

    wprintf(L"%ls: started, %ls %lu\n", wanted->name, done ? L"done" : L"error",
            done ? 0 : GetLastError());
    fflush(stdout);
    wanted->started = TRUE;
    wanted->failed_at = 0;
}

static void look_at(SC_HANDLE manager, HKEY key, const WCHAR *name)
{
    SC_HANDLE handle = OpenServiceW(manager, name, SERVICE_QUERY_STATUS | SERVICE_START);
    SERVICE_STATUS status = {0};
    service *seen = handle ? find(name) : NULL;

    if (seen && QueryServiceStatus(handle, &status)) {
        if (status.dwCurrentState != SERVICE_STOPPED) {
            seen->started = TRUE;
            seen->failed_at = 0;
        } else if (!seen->started && is_ready(manager, key)) {
            start(handle, seen);
        } else if (seen->started && status.dwWin32ExitCode &&
                   status.dwWin32ExitCode != ERROR_SERVICE_NEVER_STARTED) {
            if (!seen->failed_at)
                seen->failed_at = GetTickCount64();
            if (is_due(key, seen))
                start(handle, seen);
        }
    }
    if (handle)
        CloseServiceHandle(handle);
}

/* Those that start with the machine, except Wine's own, which Wine starts. */
static BOOL is_kept(HKEY key)
{
    WCHAR command[4096] = {0};
    DWORD type = 0, size = sizeof type, length = sizeof command - sizeof *command;

    if (RegQueryValueExW(key, L"Start", NULL, NULL, (BYTE *)&type, &size) || type != SERVICE_AUTO_START)
        return FALSE;
    if (RegQueryValueExW(key, L"ImagePath", NULL, NULL, (BYTE *)command, &length))
        return FALSE;
    return _wcsnicmp(command, L"C:\\windows\\", 11) && _wcsnicmp(command, L"%SystemRoot%", 12);
}

static void count_start(const WCHAR *uuid)
{
    static const WCHAR counted[] =
        L"SYSTEM\\CurrentControlSet\\Control\\Session Manager\\Memory Management\\PrefetchParameters";
    DWORD number = 0, size = sizeof number;
    HKEY key;

    if (!RegCreateKeyW(HKEY_LOCAL_MACHINE, counted, &key)) {
        RegQueryValueExW(key, L"BootId", NULL, NULL, (BYTE *)&number, &size);
        number++;
        RegSetValueExW(key, L"BootId", 0, REG_DWORD, (BYTE *)&number, sizeof number);
        RegFlushKey(key);
        RegCloseKey(key);
    }
    if (uuid && !RegCreateKeyW(HKEY_LOCAL_MACHINE, L"SYSTEM\\HardwareConfig", &key)) {
        size = (DWORD)((wcslen(uuid) + 1) * sizeof *uuid);
        RegSetValueExW(key, L"LastConfig", 0, REG_SZ, (const BYTE *)uuid, size);
        RegCloseKey(key);
    }
}

int wmain(int count, WCHAR **words)
{
    count_start(count > 1 ? words[1] : NULL);
    for (;; Sleep(1000)) {
        SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT);
        HKEY list, key;
        WCHAR name[NAME];
        DWORD number;

        if (!manager)
            continue;
        if (!RegOpenKeyW(HKEY_LOCAL_MACHINE, L"SYSTEM\\CurrentControlSet\\Services", &list)) {
            for (number = 0; !RegEnumKeyW(list, number, name, NAME); number++) {
                if (RegOpenKeyW(list, name, &key))
                    continue;
                if (is_kept(key))
                    look_at(manager, key, name);
                RegCloseKey(key);
            }
            RegCloseKey(list);
        }
        CloseServiceHandle(manager);
        is_on = TRUE;
    }
}
