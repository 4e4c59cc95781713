/* hybridlab-pipes.dll: whether a named pipe exists.

   Windows: GetFileAttributesW of \\.\pipe\NAME finds a pipe that somebody serves; PowerShell's
   Test-Path and .NET's File.Exists ask so.
   Wine 10.0: finds none: "waited 60 s for containerd's pipe".
   Probe: pipes.

   Asks WaitNamedPipeW instead, which knows them. */
#include "hooks.h"

#include <string.h>

static DWORD(WINAPI *windows_GetFileAttributesW)(const WCHAR *);
static BOOL(WINAPI *windows_GetFileAttributesExW)(const WCHAR *, GET_FILEEX_INFO_LEVELS, void *);

static BOOL is_pipe(const WCHAR *path)
{
    if (!path || (_wcsnicmp(path, L"\\\\.\\pipe\\", 9) && _wcsnicmp(path, L"\\\\?\\pipe\\", 9)))
        return FALSE;
    return WaitNamedPipeW(path, 1) || GetLastError() == ERROR_SEM_TIMEOUT;
}

static DWORD WINAPI our_GetFileAttributesW(const WCHAR *path)
{
    return is_pipe(path) ? FILE_ATTRIBUTE_NORMAL : windows_GetFileAttributesW(path);
}

static BOOL WINAPI our_GetFileAttributesExW(const WCHAR *path, GET_FILEEX_INFO_LEVELS level, void *data)
{
    if (!is_pipe(path))
        return windows_GetFileAttributesExW(path, level, data);
    memset(data, 0, sizeof(WIN32_FILE_ATTRIBUTE_DATA));
    ((WIN32_FILE_ATTRIBUTE_DATA *)data)->dwFileAttributes = FILE_ATTRIBUTE_NORMAL;
    return TRUE;
}

#define REPLACE(name) \
    windows_##name = (void *)replace_import(kernel, "kernelbase.dll", #name, (void *)our_##name)

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    HMODULE kernel = GetModuleHandleA("kernel32.dll");

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH)
        return TRUE;
    REPLACE(GetFileAttributesW);
    REPLACE(GetFileAttributesExW);
    return TRUE;
}
