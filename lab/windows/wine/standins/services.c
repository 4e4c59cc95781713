/* hybridlab-services.dll: how a service's program starts and ends, and what a service depends on.

   Windows: starts a service's program with the variables of its registry value Environment, and a
   service whose program has ended is STOPPED, with error 1067 if it did not say so itself.
   QueryServiceConfigW says what a service depends on.
   Wine 10.0: does not read Environment ("KUBE_NETWORK ... not initialized"). A service whose program
   reports STOP_PENDING and ends stays STOP_PENDING: "timeout waiting for kubelet service to stop".
   QueryServiceConfigW says no dependency, though the registry has them (DependOnService).
   Probes: service-dependencies, service-environment, service-exit.

   A program whose command line is a service's gets that service's variables before it reads any. A
   program that is a service reports STOPPED on its way out. */
#include "hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICES L"SYSTEM\\CurrentControlSet\\Services"

static void set_variables(const WCHAR *pairs)
{
    for (; *pairs; pairs += wcslen(pairs) + 1) {
        WCHAR *pair = _wcsdup(pairs), *value = wcschr(pair, L'=');

        if (value) {
            *value++ = 0;
            SetEnvironmentVariableW(pair, value);
        }
        free(pair);
    }
}

/* A value of a service's key, ending with two zeros; NULL if there is none. */
static WCHAR *read_value(HKEY key, const WCHAR *name)
{
    DWORD size = 0;
    WCHAR *value;

    if (RegQueryValueExW(key, name, NULL, NULL, NULL, &size))
        return NULL;
    value = calloc(1, size + 2 * sizeof *value);
    if (value && RegQueryValueExW(key, name, NULL, NULL, (BYTE *)value, &size)) {
        free(value);
        return NULL;
    }
    return value;
}

static void take_environment(void)
{
    WCHAR name[256], *command, *pairs;
    HKEY services, key;
    DWORD number;

    if (RegOpenKeyW(HKEY_LOCAL_MACHINE, SERVICES, &services))
        return;
    for (number = 0; !RegEnumKeyW(services, number, name, ARRAYSIZE(name)); number++) {
        if (RegOpenKeyW(services, name, &key))
            continue;
        pairs = read_value(key, L"Environment");
        command = pairs ? read_value(key, L"ImagePath") : NULL;
        if (command && !wcscmp(command, GetCommandLineW()))
            set_variables(pairs);
        free(command);
        free(pairs);
        RegCloseKey(key);
    }
    RegCloseKey(services);
}

static CRITICAL_SECTION lock;
static SERVICE_STATUS_HANDLE handle; /* of this program's service; NULL until it reports */
static SERVICE_STATUS last_status;
static BOOL ending, told_to_stop;
static LPHANDLER_FUNCTION_EX own_handler;

static BOOL(WINAPI *windows_SetServiceStatus)(SERVICE_STATUS_HANDLE, SERVICE_STATUS *);
static SERVICE_STATUS_HANDLE(WINAPI *windows_RegisterServiceCtrlHandlerExW)(const WCHAR *,
                                                                           LPHANDLER_FUNCTION_EX, void *);
static void(WINAPI *windows_ExitProcess)(UINT);

static DWORD WINAPI watching_handler(DWORD control, DWORD type, void *data, void *context)
{
    if (control == SERVICE_CONTROL_STOP || control == SERVICE_CONTROL_SHUTDOWN)
        told_to_stop = TRUE;
    return own_handler(control, type, data, context);
}

static SERVICE_STATUS_HANDLE WINAPI our_RegisterServiceCtrlHandlerExW(const WCHAR *name,
                                                                      LPHANDLER_FUNCTION_EX function,
                                                                      void *context)
{
    own_handler = function;
    return windows_RegisterServiceCtrlHandlerExW(name, watching_handler, context);
}

static BOOL WINAPI our_SetServiceStatus(SERVICE_STATUS_HANDLE service, SERVICE_STATUS *status)
{
    BOOL taken = TRUE;

    EnterCriticalSection(&lock);
    if (!ending) {
        handle = service;
        last_status = *status;
        taken = windows_SetServiceStatus(service, status);
    }
    LeaveCriticalSection(&lock);
    return taken;
}

static void WINAPI our_ExitProcess(UINT code)
{
    EnterCriticalSection(&lock);
    ending = TRUE;
    if (handle && last_status.dwCurrentState != SERVICE_STOPPED) {
        last_status.dwWin32ExitCode = told_to_stop ? 0 : ERROR_PROCESS_ABORTED;
        last_status.dwCurrentState = SERVICE_STOPPED;
        last_status.dwCheckPoint = last_status.dwWaitHint = last_status.dwControlsAccepted = 0;
        windows_SetServiceStatus(handle, &last_status);
    }
    LeaveCriticalSection(&lock);
    windows_ExitProcess(code);
}

/* The names of opened services, by handle. */
enum { HANDLES = 64, NAME = 256 };
static struct {
    SC_HANDLE handle; /* NULL: free */
    WCHAR name[NAME];
} opened[HANDLES];

static SC_HANDLE(WINAPI *windows_OpenServiceW)(SC_HANDLE, const WCHAR *, DWORD);
static BOOL(WINAPI *windows_CloseServiceHandle)(SC_HANDLE);
static BOOL(WINAPI *windows_QueryServiceConfigW)(SC_HANDLE, QUERY_SERVICE_CONFIGW *, DWORD, DWORD *);

static SC_HANDLE WINAPI our_OpenServiceW(SC_HANDLE manager, const WCHAR *name, DWORD access)
{
    SC_HANDLE service = windows_OpenServiceW(manager, name, access);
    int number;

    EnterCriticalSection(&lock);
    for (number = 0; number < HANDLES && opened[number].handle; number++)
        continue;
    if (service && number < HANDLES) {
        opened[number].handle = service;
        wcsncpy(opened[number].name, name, NAME - 1);
    }
    LeaveCriticalSection(&lock);
    return service;
}

static BOOL WINAPI our_CloseServiceHandle(SC_HANDLE service)
{
    int number;

    EnterCriticalSection(&lock);
    for (number = 0; service && number < HANDLES; number++)
        if (opened[number].handle == service)
            opened[number].handle = NULL;
    LeaveCriticalSection(&lock);
    return windows_CloseServiceHandle(service);
}

/* What an opened service depends on, as a list that ends with an empty name; NULL for nothing. */
static WCHAR *read_dependencies(SC_HANDLE service)
{
    WCHAR path[NAME + 64] = L"", *names = NULL;
    int number;
    HKEY key;

    EnterCriticalSection(&lock);
    for (number = 0; number < HANDLES; number++)
        if (opened[number].handle == service)
            _snwprintf(path, ARRAYSIZE(path) - 1, SERVICES L"\\%ls", opened[number].name);
    LeaveCriticalSection(&lock);
    if (*path && !RegOpenKeyW(HKEY_LOCAL_MACHINE, path, &key)) {
        names = read_value(key, L"DependOnService");
        RegCloseKey(key);
    }
    return names;
}

static BOOL WINAPI our_QueryServiceConfigW(SC_HANDLE service, QUERY_SERVICE_CONFIGW *config, DWORD size,
                                           DWORD *needed)
{
    WCHAR *names = read_dependencies(service), *name;
    DWORD own = 0, bytes;
    BOOL done = FALSE;

    if (!names)
        return windows_QueryServiceConfigW(service, config, size, needed);
    for (name = names; *name; name += wcslen(name) + 1)
        continue;
    bytes = (DWORD)((name - names + 1) * sizeof *names);
    windows_QueryServiceConfigW(service, NULL, 0, &own);
    own = (own + 7) & ~7u;
    *needed = own + bytes;
    if (size < *needed) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
    } else if ((done = windows_QueryServiceConfigW(service, config, own, &own))) {
        config->lpDependencies = (WCHAR *)((BYTE *)config + *needed - bytes);
        memcpy(config->lpDependencies, names, bytes);
    }
    free(names);
    return done;
}

#define REPLACE(name)                                                                    \
    windows_##name = (void *)GetProcAddress(LoadLibraryA("sechost.dll"), #name);          \
    replace_import(advapi, "sechost.dll", #name, (void *)our_##name)

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    HMODULE advapi;

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH)
        return TRUE;
    InitializeCriticalSection(&lock);
    take_environment();
    advapi = LoadLibraryA("advapi32.dll");
    REPLACE(SetServiceStatus);
    REPLACE(RegisterServiceCtrlHandlerExW);
    REPLACE(OpenServiceW);
    REPLACE(CloseServiceHandle);
    REPLACE(QueryServiceConfigW);
    windows_ExitProcess = (void *)GetProcAddress(GetModuleHandleA("kernel32.dll"), "ExitProcess");
    replace_import(GetModuleHandleA(NULL), "kernel32.dll", "ExitProcess", (void *)our_ExitProcess);
    return TRUE;
}
