/* hybridlab-symlinks.dll: symbolic links.

   Windows: CreateSymbolicLinkW makes a reparse point. Its attributes say so, FSCTL_GET_REPARSE_POINT
   reads its target, DeleteFileW and MoveFileExW act on the link itself.
   Wine 10.0: CreateSymbolicLinkW does nothing and reports success. A kubelet finds no
   kubelet-client-current.pem ("unable to rename kubelet-client-updated.pem"), and ConfigMap volumes
   have no ..data.
   Probe: symlinks.

   A link is a link of Linux, relative to its folder, so that containers that mount the folder follow
   it too; one that was made with an absolute target begins with "./", and is read as absolute. One
   that a program of Linux made with an absolute target, as tar does in a pod, is read as leading to
   drive C. The functions by which Windows programs see links are replaced in kernel32, and those by
   which Go removes a folder with all that is in it, in ntdll. FindFirstFileW is not: listings show a
   link as what it leads to, and leave out one that leads nowhere. So what removes a folder by its
   listing alone, as Remove-Item -Recurse, goes into links to folders. */
#include "hooks.h"

#include <stdlib.h>
#include <string.h>
#include <winioctl.h>
#include <winternl.h>

/* Linux system calls of x86-64 (asm/unistd_64.h), and error numbers (asm-generic/errno-base.h). */
enum {
    LINUX_OPEN = 2,
    LINUX_CLOSE = 3,
    LINUX_STAT = 4,
    LINUX_RENAME = 82,
    LINUX_UNLINK = 87,
    LINUX_SYMLINK = 88,
    LINUX_READLINK = 89,
    LINUX_GETDENTS64 = 217,
    LINUX_ENOENT = 2,
    LINUX_EEXIST = 17,
    LINUX_O_DIRECTORY = 0200000
};
enum { LONGEST = 4096, HANDLES = 128, ATTRIBUTE_TAG_CLASS = 9 };
/* ntdll's names for what is asked of a link (wdm.h, ntifs.h). */
enum { DONT_REPARSE = 0x1000, OPEN_LINK = 0x00200000, EITHER_KIND = 0x41 };
enum { DISPOSITION_CLASS = 13, DISPOSITION_EX_CLASS = 64 };
static const NTSTATUS REPARSE_POINT_ENCOUNTERED = (NTSTATUS)0xC000050B;
static const NTSTATUS ACCESS_DENIED = (NTSTATUS)0xC0000022;

static char *(CDECL *wine_get_unix_file_name)(const WCHAR *); /* of Wine's kernel32 */
static WCHAR *(CDECL *wine_get_dos_file_name)(const char *);  /* the same */

static BOOL(WINAPI *windows_DeleteFileW)(const WCHAR *);
static BOOL(WINAPI *windows_RemoveDirectoryW)(const WCHAR *);
static BOOL(WINAPI *windows_MoveFileExW)(const WCHAR *, const WCHAR *, DWORD);
static DWORD(WINAPI *windows_GetFileAttributesW)(const WCHAR *);
static BOOL(WINAPI *windows_SetFileAttributesW)(const WCHAR *, DWORD);
static BOOL(WINAPI *windows_GetFileAttributesExW)(const WCHAR *, GET_FILEEX_INFO_LEVELS, void *);
static HANDLE(WINAPI *windows_CreateFileW)(const WCHAR *, DWORD, DWORD, void *, DWORD, DWORD, HANDLE);
static BOOL(WINAPI *windows_CloseHandle)(HANDLE);
static BOOL(WINAPI *windows_GetFileInformationByHandle)(HANDLE, BY_HANDLE_FILE_INFORMATION *);
static BOOL(WINAPI *windows_GetFileInformationByHandleEx)(HANDLE, FILE_INFO_BY_HANDLE_CLASS, void *,
                                                          DWORD);
static BOOL(WINAPI *windows_DeviceIoControl)(HANDLE, DWORD, void *, DWORD, void *, DWORD, DWORD *,
                                             OVERLAPPED *);
static NTSTATUS(WINAPI *windows_NtCreateFile)(HANDLE *, ACCESS_MASK, OBJECT_ATTRIBUTES *,
                                              IO_STATUS_BLOCK *, LARGE_INTEGER *, ULONG, ULONG, ULONG,
                                              ULONG, void *, ULONG);
static NTSTATUS(WINAPI *windows_NtOpenFile)(HANDLE *, ACCESS_MASK, OBJECT_ATTRIBUTES *,
                                            IO_STATUS_BLOCK *, ULONG, ULONG);
static NTSTATUS(WINAPI *windows_NtSetInformationFile)(HANDLE, IO_STATUS_BLOCK *, void *, ULONG, ULONG);
static void *windows_CreateSymbolicLinkW;

static LONG_PTR linux_call(LONG_PTR number, const void *first, const void *second, LONG_PTR third)
{
    LONG_PTR result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

static BOOL succeeded(LONG_PTR result)
{
    if (result >= 0)
        return TRUE;
    SetLastError(result == -LINUX_EEXIST   ? ERROR_ALREADY_EXISTS
                 : result == -LINUX_ENOENT ? ERROR_PATH_NOT_FOUND
                                           : ERROR_ACCESS_DENIED);
    return FALSE;
}

/* The Linux path of a Windows path, for HeapFree; NULL for devices and what Wine cannot map. */
static char *linux_path(const WCHAR *path)
{
    DWORD error = GetLastError();
    char *mapped;

    if (!path || !*path || !wcsncmp(path, L"\\\\.\\", 4))
        return NULL;
    mapped = wine_get_unix_file_name(path);
    SetLastError(error);
    return mapped;
}

static void release(char *path)
{
    if (path)
        HeapFree(GetProcessHeap(), 0, path);
}

/* The target of a link by its Linux path; FALSE if it is none. */
static BOOL read_link(const char *path, char target[LONGEST])
{
    LONG_PTR length = path ? linux_call(LINUX_READLINK, path, target, LONGEST - 1) : -1;

    if (length < 0)
        return FALSE;
    target[length] = 0;
    return TRUE;
}

static BOOL is_link(const WCHAR *path)
{
    char target[LONGEST], *mapped = linux_path(path);
    BOOL link = read_link(mapped, target);

    release(mapped);
    return link;
}

/* The path from a link's folder to a target, both absolute Linux paths; marked as absolute. */
static void relative(const char *link, const char *target, char result[LONGEST])
{
    size_t common = 0, at;

    for (at = 0; link[at] && link[at] == target[at]; at++)
        if (link[at] == '/')
            common = at + 1;
    strcpy(result, "./");
    for (at = common; link[at]; at++)
        if (link[at] == '/')
            strncat(result, "../", LONGEST - strlen(result) - 1);
    strncat(result, target + common, LONGEST - strlen(result) - 1);
}

static BOOLEAN WINAPI our_CreateSymbolicLinkW(const WCHAR *link, const WCHAR *target, DWORD flags)
{
    char text[LONGEST], *own = linux_path(link), *far_end = NULL, *at;
    BOOL absolute = target[0] == '\\' || (target[0] && target[1] == ':');
    BOOL made = FALSE;

    (void)flags; /* a link of Linux does not say whether it leads to a folder */
    if (absolute)
        far_end = linux_path(target);
    if (!own || (absolute && !far_end)) {
        SetLastError(ERROR_PATH_NOT_FOUND);
    } else {
        if (absolute) {
            relative(own, far_end, text);
        } else {
            WideCharToMultiByte(CP_UTF8, 0, target, -1, text, sizeof text, NULL, NULL);
            for (at = text; *at; at++)
                if (*at == '\\')
                    *at = '/';
        }
        made = succeeded(linux_call(LINUX_SYMLINK, text, own, 0));
    }
    release(own);
    release(far_end);
    return (BOOLEAN)made;
}

static BOOL WINAPI our_DeleteFileW(const WCHAR *path)
{
    char target[LONGEST], *mapped = linux_path(path);
    BOOL link = read_link(mapped, target), gone = FALSE;

    if (link)
        gone = succeeded(linux_call(LINUX_UNLINK, mapped, NULL, 0));
    release(mapped);
    return link ? gone : windows_DeleteFileW(path);
}

/* Remove the links of a folder that lead nowhere; FALSE if anything else is in it. */
static BOOL remove_dead_links(const char *folder)
{
    char entries[8192], path[LONGEST], target[LONGEST], status[256];
    LONG_PTR handle = linux_call(LINUX_OPEN, folder, (void *)LINUX_O_DIRECTORY, 0), size, at;
    BOOL empty = handle >= 0;

    while (handle >= 0 &&
           (size = linux_call(LINUX_GETDENTS64, (void *)handle, entries, sizeof entries)) > 0)
        for (at = 0; at < size; at += *(WORD *)(entries + at + 16)) {
            const char *name = entries + at + 19; /* struct linux_dirent64 */

            if (!strcmp(name, ".") || !strcmp(name, ".."))
                continue;
            if (strlen(folder) + strlen(name) + 2 > sizeof path) {
                empty = FALSE;
                continue;
            }
            strcpy(path, folder);
            strcat(path, "/");
            strcat(path, name);
            if (read_link(path, target) && linux_call(LINUX_STAT, path, status, 0) < 0)
                linux_call(LINUX_UNLINK, path, NULL, 0);
            else
                empty = FALSE;
        }
    if (handle >= 0)
        linux_call(LINUX_CLOSE, (void *)handle, NULL, 0);
    return empty;
}

/* A listing leaves out links that lead nowhere, so nobody but this can empty such a folder. */
static BOOL WINAPI our_RemoveDirectoryW(const WCHAR *path)
{
    char *mapped;
    BOOL empty;

    if (is_link(path))
        return our_DeleteFileW(path);
    if (windows_RemoveDirectoryW(path))
        return TRUE;
    if (GetLastError() != ERROR_DIR_NOT_EMPTY)
        return FALSE;
    mapped = linux_path(path);
    empty = mapped && remove_dead_links(mapped);
    release(mapped);
    if (empty)
        return windows_RemoveDirectoryW(path);
    SetLastError(ERROR_DIR_NOT_EMPTY);
    return FALSE;
}

static BOOL WINAPI our_MoveFileExW(const WCHAR *from, const WCHAR *to, DWORD flags)
{
    char *source, *target;
    BOOL moved;

    if (!to || (!is_link(from) && !is_link(to)))
        return windows_MoveFileExW(from, to, flags);
    source = linux_path(from);
    target = linux_path(to);
    moved = source && target && succeeded(linux_call(LINUX_RENAME, source, target, 0));
    release(source);
    release(target);
    return moved;
}

static DWORD WINAPI our_GetFileAttributesW(const WCHAR *path)
{
    DWORD attributes = windows_GetFileAttributesW(path), error = GetLastError();

    if (is_link(path))
        return (attributes == INVALID_FILE_ATTRIBUTES ? 0 : attributes) | FILE_ATTRIBUTE_REPARSE_POINT;
    SetLastError(error);
    return attributes;
}

/* A link of Linux has no attributes of its own, and what it leads to keeps its own. */
static BOOL WINAPI our_SetFileAttributesW(const WCHAR *path, DWORD attributes)
{
    return is_link(path) || windows_SetFileAttributesW(path, attributes);
}

static BOOL WINAPI our_GetFileAttributesExW(const WCHAR *path, GET_FILEEX_INFO_LEVELS level, void *data)
{
    BOOL known = windows_GetFileAttributesExW(path, level, data);
    DWORD error = GetLastError();

    if (!is_link(path)) {
        SetLastError(error);
        return known;
    }
    if (!known)
        memset(data, 0, sizeof(WIN32_FILE_ATTRIBUTE_DATA));
    ((WIN32_FILE_ATTRIBUTE_DATA *)data)->dwFileAttributes |= FILE_ATTRIBUTE_REPARSE_POINT;
    return TRUE;
}

/* The target of a link as Windows names it, from the text of the link of Linux. */
static void windows_target(const char *link, const char *text, WCHAR target[LONGEST])
{
    char path[2 * LONGEST], *end;
    WCHAR *name, *at;

    if (strncmp(text, "./", 2)) {
        strcpy(path, *text == '/' ? "C:" : "");
        strcat(path, text);
        MultiByteToWideChar(CP_UTF8, 0, path, -1, target, LONGEST);
        for (at = target; *at; at++)
            if (*at == '/')
                *at = '\\';
        return;
    }
    strcpy(path, link);
    end = strrchr(path, '/');
    for (text += 2; !strncmp(text, "../", 3) && end > path; text += 3) {
        *end = 0;
        end = strrchr(path, '/');
    }
    strcpy(end + 1, text);
    target[0] = 0;
    name = wine_get_dos_file_name(path);
    if (name)
        wcsncpy(target, name, LONGEST - 1);
    HeapFree(GetProcessHeap(), 0, name);
}

/* Handles that were opened on a link itself, with the link's target and its Linux path. */
static struct {
    HANDLE handle; /* NULL: free */
    WCHAR target[LONGEST];
    char link[LONGEST];
} opened[HANDLES];
static CRITICAL_SECTION lock;

/* Remember the handle of a link. */
static void remember(HANDLE handle, const char *link, const char *text)
{
    int number;

    EnterCriticalSection(&lock);
    for (number = 0; number < HANDLES && opened[number].handle; number++)
        continue;
    if (number < HANDLES) {
        windows_target(link, text, opened[number].target);
        strncpy(opened[number].link, link, LONGEST - 1);
        opened[number].handle = handle;
    }
    LeaveCriticalSection(&lock);
}

/* Any handle will do for a link that leads nowhere. */
static HANDLE any_handle(void)
{
    return windows_CreateFileW(L"C:\\", 0, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING,
                               FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

/* Copy the target of a link's handle; FALSE for other handles. */
static BOOL target_of(HANDLE handle, WCHAR target[LONGEST])
{
    BOOL known = FALSE;
    int number;

    EnterCriticalSection(&lock);
    for (number = 0; !known && number < HANDLES; number++)
        if (opened[number].handle == handle) {
            wcscpy(target, opened[number].target);
            known = TRUE;
        }
    LeaveCriticalSection(&lock);
    return known;
}

static HANDLE WINAPI our_CreateFileW(const WCHAR *path, DWORD access, DWORD share, void *security,
                                     DWORD disposition, DWORD flags, HANDLE template)
{
    char text[LONGEST], *mapped = NULL;
    HANDLE handle;
    BOOL link = FALSE;

    if (flags & FILE_FLAG_OPEN_REPARSE_POINT) {
        mapped = linux_path(path);
        link = read_link(mapped, text);
    }
    handle = windows_CreateFileW(path, access, share, security, disposition, flags, template);
    if (link && handle == INVALID_HANDLE_VALUE)
        handle = any_handle();
    if (link && handle != INVALID_HANDLE_VALUE)
        remember(handle, mapped, text);
    release(mapped);
    return handle;
}

/* The Linux path of what ntdll is asked to open, if that is a link, for HeapFree; else NULL. */
static char *named_link(const OBJECT_ATTRIBUTES *named, char text[LONGEST])
{
    WCHAR path[LONGEST];
    size_t length = 0, more = named->ObjectName ? named->ObjectName->Length / sizeof(WCHAR) : 0;
    char *mapped;

    if (named->RootDirectory) {
        length = GetFinalPathNameByHandleW(named->RootDirectory, path, LONGEST, 0);
        if (!length || length + more + 2 > LONGEST)
            return NULL;
        path[length++] = '\\';
    } else if (more < 4 || more + 1 > LONGEST || wcsncmp(named->ObjectName->Buffer, L"\\??\\", 4)) {
        return NULL;
    }
    if (more)
        memcpy(path + length, named->ObjectName->Buffer, more * sizeof(WCHAR));
    path[length + more] = 0;
    if (!named->RootDirectory)
        path[1] = '\\'; /* as kernel32 names it */
    mapped = linux_path(path);
    if (read_link(mapped, text))
        return mapped;
    release(mapped);
    return NULL;
}

static NTSTATUS WINAPI our_NtCreateFile(HANDLE *handle, ACCESS_MASK access, OBJECT_ATTRIBUTES *named,
                                        IO_STATUS_BLOCK *status, LARGE_INTEGER *size, ULONG attributes,
                                        ULONG share, ULONG disposition, ULONG options, void *extended,
                                        ULONG extended_size)
{
    char text[LONGEST], *link = named->Attributes & DONT_REPARSE ? named_link(named, text) : NULL;

    release(link);
    if (link)
        return REPARSE_POINT_ENCOUNTERED;
    return windows_NtCreateFile(handle, access, named, status, size, attributes, share, disposition,
                                options, extended, extended_size);
}

static NTSTATUS WINAPI our_NtOpenFile(HANDLE *handle, ACCESS_MASK access, OBJECT_ATTRIBUTES *named,
                                      IO_STATUS_BLOCK *status, ULONG share, ULONG options)
{
    char text[LONGEST], *link = options & OPEN_LINK ? named_link(named, text) : NULL;
    NTSTATUS code;

    if (!link)
        return windows_NtOpenFile(handle, access, named, status, share, options);
    code = windows_NtOpenFile(handle, access, named, status, share, options & ~(ULONG)EITHER_KIND);
    if (code) {
        *handle = any_handle();
        code = *handle == INVALID_HANDLE_VALUE ? code : 0;
    }
    if (!code)
        remember(*handle, link, text);
    release(link);
    return code;
}

static NTSTATUS WINAPI our_NtSetInformationFile(HANDLE handle, IO_STATUS_BLOCK *status, void *data,
                                                ULONG size, ULONG class)
{
    char link[LONGEST] = "";
    int number;

    if (class == DISPOSITION_CLASS || class == DISPOSITION_EX_CLASS) {
        EnterCriticalSection(&lock);
        for (number = 0; number < HANDLES; number++)
            if (handle && opened[number].handle == handle)
                strcpy(link, opened[number].link);
        LeaveCriticalSection(&lock);
    }
    if (!*link)
        return windows_NtSetInformationFile(handle, status, data, size, class);
    /* either class begins with whether to delete it */
    if ((*(BYTE *)data & 1) && !succeeded(linux_call(LINUX_UNLINK, link, NULL, 0)))
        return ACCESS_DENIED;
    return 0;
}

static BOOL WINAPI our_CloseHandle(HANDLE handle)
{
    int number;

    EnterCriticalSection(&lock);
    for (number = 0; handle && number < HANDLES; number++)
        if (opened[number].handle == handle)
            opened[number].handle = NULL;
    LeaveCriticalSection(&lock);
    return windows_CloseHandle(handle);
}

static BOOL WINAPI our_GetFileInformationByHandle(HANDLE handle, BY_HANDLE_FILE_INFORMATION *data)
{
    WCHAR target[LONGEST];
    BOOL known = windows_GetFileInformationByHandle(handle, data);

    if (known && target_of(handle, target))
        data->dwFileAttributes |= FILE_ATTRIBUTE_REPARSE_POINT;
    return known;
}

static BOOL WINAPI our_GetFileInformationByHandleEx(HANDLE handle, FILE_INFO_BY_HANDLE_CLASS class,
                                                    void *data, DWORD size)
{
    WCHAR target[LONGEST];
    BY_HANDLE_FILE_INFORMATION plain;
    FILE_ATTRIBUTE_TAG_INFO *tag = data;

    if ((int)class != ATTRIBUTE_TAG_CLASS || !target_of(handle, target))
        return windows_GetFileInformationByHandleEx(handle, class, data, size);
    if (!windows_GetFileInformationByHandle(handle, &plain))
        return FALSE;
    tag->FileAttributes = plain.dwFileAttributes | FILE_ATTRIBUTE_REPARSE_POINT;
    tag->ReparseTag = IO_REPARSE_TAG_SYMLINK;
    return TRUE;
}

/* REPARSE_DATA_BUFFER of a symbolic link, which user-mode headers do not have (ntifs.h). */
typedef struct {
    DWORD tag;
    WORD length, reserved;
    WORD substitute_offset, substitute_length, print_offset, print_length;
    DWORD relative;
    WCHAR names[1];
} link_buffer;

static BOOL WINAPI our_DeviceIoControl(HANDLE handle, DWORD code, void *in, DWORD in_size, void *out,
                                       DWORD out_size, DWORD *returned, OVERLAPPED *overlapped)
{
    static const WCHAR device[] = L"\\??\\"; /* begins an absolute substitute name */
    WCHAR target[LONGEST];
    link_buffer *buffer = out;
    DWORD needed, prefix, bytes;

    if (code != FSCTL_GET_REPARSE_POINT || !target_of(handle, target))
        return windows_DeviceIoControl(handle, code, in, in_size, out, out_size, returned, overlapped);
    prefix = target[0] && target[1] == ':' ? sizeof device - sizeof(WCHAR) : 0;
    bytes = (DWORD)(wcslen(target) * sizeof(WCHAR));
    needed = (DWORD)offsetof(link_buffer, names) + prefix + 2 * bytes;
    if (needed > out_size) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
        return FALSE;
    }
    memset(buffer, 0, needed);
    buffer->tag = IO_REPARSE_TAG_SYMLINK;
    buffer->length = (WORD)(needed - 8); /* what follows tag, length and reserved */
    buffer->substitute_length = buffer->print_offset = (WORD)(prefix + bytes);
    buffer->print_length = (WORD)bytes;
    buffer->relative = !prefix; /* SYMLINK_FLAG_RELATIVE */
    memcpy(buffer->names, device, prefix);
    memcpy((BYTE *)buffer->names + prefix, target, bytes);
    memcpy((BYTE *)buffer->names + prefix + bytes, target, bytes);
    if (returned)
        *returned = needed;
    return TRUE;
}

/* Both kernel32's function and kernelbase's, which PowerShell calls as api-ms-win-core-file-l2. */
static void *replaced(HMODULE kernel, const char *name, void *ours)
{
    void *before = replace_import(kernel, "kernelbase.dll", name, ours);
    void *base = replace_export(GetModuleHandleA("kernelbase.dll"), name, ours);

    return before ? before : base;
}

#define REPLACE(name) windows_##name = replaced(kernel, #name, (void *)our_##name)
#define REPLACE_NT(name) windows_##name = replace_export(GetModuleHandleA("ntdll.dll"), #name, (void *)our_##name)

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    HMODULE kernel = GetModuleHandleA("kernel32.dll");

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH)
        return TRUE;
    wine_get_unix_file_name = (void *)GetProcAddress(kernel, "wine_get_unix_file_name");
    wine_get_dos_file_name = (void *)GetProcAddress(kernel, "wine_get_dos_file_name");
    if (!wine_get_unix_file_name || !wine_get_dos_file_name)
        return TRUE;
    InitializeCriticalSection(&lock);
    REPLACE(CreateSymbolicLinkW);
    REPLACE(DeleteFileW);
    REPLACE(RemoveDirectoryW);
    REPLACE(MoveFileExW);
    REPLACE(GetFileAttributesW);
    REPLACE(GetFileAttributesExW);
    REPLACE(SetFileAttributesW);
    REPLACE(CreateFileW);
    REPLACE(CloseHandle);
    REPLACE(GetFileInformationByHandle);
    REPLACE(GetFileInformationByHandleEx);
    REPLACE_NT(NtCreateFile);
    REPLACE_NT(NtOpenFile);
    REPLACE_NT(NtSetInformationFile);
    windows_DeviceIoControl = (void *)replace_export(kernel, "DeviceIoControl", (void *)our_DeviceIoControl);
    return TRUE;
}
