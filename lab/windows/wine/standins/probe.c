/* probe.exe NAME: whether this Wine does what Windows does.

   Ends with 0 if it does, else with 1 and a line that says what it does instead. A stand-in is
   installed where its probe ends with 1, and its probe must end with 0 afterwards. As a service it is
   started with "serve", and behaves as a program of Windows may. */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>
#include <iphlpapi.h>
#include <winioctl.h>
#include <winternl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVICE L"hybridlab-probe"
#define FOLDER L"C:\\hybridlab-probe"

static int lacks(const char *what, unsigned long code)
{
    printf("%s (%lu, 0x%lx)\n", what, code, code);
    return 1;
}

/* Functions are looked up when they are needed, as Go programs and .NET do: what is imported by name
   is bound before a stand-in can come. */
#define LOOK_UP(library, function) ((typeof(&function))(void *)GetProcAddress(LoadLibraryA(library), #function))

static int adapters(void)
{
    static BYTE buffer[1 << 16];
    ULONG size = sizeof buffer;
    ULONG code = LOOK_UP("iphlpapi.dll", GetAdaptersAddresses)(AF_UNSPEC, GAA_FLAG_INCLUDE_PREFIX, NULL,
                                                               (void *)buffer, &size);

    return code ? lacks("GetAdaptersAddresses refuses GAA_FLAG_INCLUDE_PREFIX", code) : 0;
}

static int unix_sockets(void)
{
    struct {
        SHORT family;
        char path[108];
    } address = {1, "C:\\hybridlab-probe.sock"};
    SOCKET server, client;
    int code = 0;

    DeleteFileA(address.path);
    server = LOOK_UP("ws2_32.dll", socket)(1, SOCK_STREAM, 0);
    if (server == INVALID_SOCKET)
        return lacks("socket refuses AF_UNIX", (unsigned long)WSAGetLastError());
    client = LOOK_UP("ws2_32.dll", socket)(1, SOCK_STREAM, 0);
    if (LOOK_UP("ws2_32.dll", bind)(server, (struct sockaddr *)&address, sizeof address) ||
        listen(server, 1) ||
        LOOK_UP("ws2_32.dll", connect)(client, (struct sockaddr *)&address, sizeof address))
        code = lacks("a Unix socket does not connect", (unsigned long)WSAGetLastError());
    LOOK_UP("ws2_32.dll", closesocket)(client);
    LOOK_UP("ws2_32.dll", closesocket)(server);
    DeleteFileA(address.path);
    return code;
}

static int udp(void)
{
    SOCKET channel = LOOK_UP("ws2_32.dll", socket)(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    DWORD no = 0, size;
    int code = LOOK_UP("ws2_32.dll", WSAIoctl)(channel, 0x9800000F /* SIO_UDP_NETRESET */, &no, sizeof no,
                                               NULL, 0, &size, NULL, NULL);

    return code ? lacks("WSAIoctl refuses SIO_UDP_NETRESET", (unsigned long)WSAGetLastError()) : 0;
}

/* As Go removes an entry of a folder (internal/syscall/windows, Deleteat). */
static NTSTATUS remove_entry(HANDLE folder, const WCHAR *name)
{
    UNICODE_STRING text = {(USHORT)(wcslen(name) * sizeof *name), (USHORT)(wcslen(name) * sizeof *name),
                           (WCHAR *)name};
    OBJECT_ATTRIBUTES named = {.Length = sizeof named, .RootDirectory = folder, .ObjectName = &text};
    ULONG remove = 1; /* FILE_DISPOSITION_INFORMATION_EX */
    IO_STATUS_BLOCK status;
    HANDLE entry;
    NTSTATUS code = LOOK_UP("ntdll.dll", NtOpenFile)(&entry, DELETE | FILE_READ_ATTRIBUTES, &named,
                                                     &status, 7, 0x00200000 | 0x00004000 | 0x40);

    if (code)
        return code;
    code = ((NTSTATUS(WINAPI *)(HANDLE, IO_STATUS_BLOCK *, void *, ULONG, ULONG))(void *)GetProcAddress(
        LoadLibraryA("ntdll.dll"), "NtSetInformationFile"))(entry, &status, &remove, sizeof remove, 64);
    CloseHandle(entry);
    return code;
}

static int symlinks(void)
{
    static const WCHAR link[] = FOLDER L"\\link", moved[] = FOLDER L"\\moved";
    static const WCHAR folder[] = FOLDER L"\\folder";
    BYTE buffer[1024] = {0};
    DWORD size = 0;
    HANDLE handle;
    int code = 0;

    CreateDirectoryW(FOLDER, NULL);
    CreateDirectoryW(folder, NULL);
    LOOK_UP("kernelbase.dll", CreateSymbolicLinkW)(link, L"folder", 3); /* to a folder; unprivileged */
    if (!(GetFileAttributesW(link) & FILE_ATTRIBUTE_REPARSE_POINT) ||
        GetFileAttributesW(link) == INVALID_FILE_ATTRIBUTES)
        code = lacks("CreateSymbolicLinkW makes no link", GetFileAttributesW(link));
    if (!code && !MoveFileExW(link, moved, MOVEFILE_REPLACE_EXISTING))
        code = lacks("a link cannot be renamed", GetLastError());
    handle = CreateFileW(moved, 0, 7, NULL, OPEN_EXISTING,
                         FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (!code && !LOOK_UP("kernel32.dll", DeviceIoControl)(handle, FSCTL_GET_REPARSE_POINT, NULL, 0,
                                                           buffer, sizeof buffer, &size, NULL))
        code = lacks("a link's target cannot be read", GetLastError());
    if (!code && *(DWORD *)buffer != IO_REPARSE_TAG_SYMLINK)
        code = lacks("a link has another tag", *(DWORD *)buffer);
    if (handle != INVALID_HANDLE_VALUE)
        CloseHandle(handle);
    if (!code && !RemoveDirectoryW(moved))
        code = lacks("a link cannot be removed", GetLastError());
    if (!code && GetFileAttributesW(folder) == INVALID_FILE_ATTRIBUTES)
        code = lacks("removing a link removes what it leads to", GetLastError());
    LOOK_UP("kernelbase.dll", CreateSymbolicLinkW)(link, L"nowhere", 2); /* to a file; unprivileged */
    if (!code && !SetFileAttributesW(link, FILE_ATTRIBUTE_NORMAL))
        code = lacks("a link that leads nowhere has no attributes to set", GetLastError());
    if (!code && !DeleteFileW(link))
        code = lacks("a link that leads nowhere cannot be removed", GetLastError());
    LOOK_UP("kernelbase.dll", CreateSymbolicLinkW)(link, L"folder", 3);
    handle = CreateFileW(FOLDER, GENERIC_READ, 7, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (!code && remove_entry(handle, L"link"))
        code = lacks("an entry that is a link cannot be removed", GetLastError());
    if (!code && GetFileAttributesW(folder) == INVALID_FILE_ATTRIBUTES)
        code = lacks("removing an entry removes what it leads to", GetLastError());
    CloseHandle(handle);
    RemoveDirectoryW(link);
    RemoveDirectoryW(folder);
    RemoveDirectoryW(FOLDER);
    return code;
}

enum { LINUX_MINCORE = 27, LINUX_GETPID = 39 }; /* asm/unistd_64.h */

static LONG_PTR linux_call(LONG_PTR number, void *first, LONG_PTR second, void *third)
{
    LONG_PTR result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

/* Whether the code of this program is mapped from a file: Linux' list of its memory names one there. */
static int pages(void)
{
    unsigned long long start, end, file = 1;
    char line[1024];
    FILE *maps;

    sprintf(line, "Z:\\proc\\%d\\maps", (int)linux_call(LINUX_GETPID, NULL, 0, NULL));
    maps = fopen(line, "r");
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &start, &end, &file) == 3 &&
            start <= (ULONG_PTR)pages && (ULONG_PTR)pages < end)
            break;
    if (maps)
        fclose(maps);
    return file ? 0 : lacks("a program's code is read into memory of its own", 0);
}

enum { PAGE = 4096, STACK_PAGES = 1024 * 1024 / PAGE, FEW_PAGES = 32 };

/* How many pages of the last MiB of this thread's stack are in memory. */
static DWORD WINAPI count_pages(void *unused)
{
    BYTE *start = (BYTE *)(((ULONG_PTR)&unused + PAGE - 1) & ~(ULONG_PTR)(PAGE - 1)) - STACK_PAGES * PAGE;
    static BYTE there[STACK_PAGES];
    DWORD number, count = 0;

    for (number = 0; number < STACK_PAGES; number++) /* an error: nothing is mapped there */
        count += !linux_call(LINUX_MINCORE, start + number * PAGE, PAGE, &there[number]) && there[number] & 1;
    return count;
}

static int stacks(void)
{
    HANDLE thread = CreateThread(NULL, 0, count_pages, NULL, 0, NULL);
    DWORD count = 0;

    WaitForSingleObject(thread, INFINITE);
    GetExitCodeThread(thread, &count);
    CloseHandle(thread);
    return count > FEW_PAGES ? lacks("a new thread has used pages of its stack", count) : 0;
}

static int pipes(void)
{
    static const WCHAR name[] = L"\\\\.\\pipe\\hybridlab-probe";
    HANDLE pipe = CreateNamedPipeW(name, PIPE_ACCESS_DUPLEX, PIPE_TYPE_BYTE, 1, 512, 512, 0, NULL);
    DWORD attributes = GetFileAttributesW(name), code = GetLastError();

    CloseHandle(pipe);
    return attributes == INVALID_FILE_ATTRIBUTES ? lacks("a named pipe has no attributes", code) : 0;
}

static int counters(void)
{
    HMODULE pdh = LoadLibraryA("pdh.dll");
    DWORD(WINAPI * open)(const WCHAR *, DWORD_PTR, HANDLE *) = (void *)GetProcAddress(pdh, "PdhOpenQueryW");
    DWORD(WINAPI * add)(HANDLE, const WCHAR *, DWORD_PTR, HANDLE *) =
        (void *)GetProcAddress(pdh, "PdhAddEnglishCounterW");
    HANDLE query, counter;
    DWORD code;

    if (!open || !add || (code = open(NULL, 0, &query)))
        return lacks("pdh.dll opens no query", 0);
    code = add(query, L"\\Process(_Total)\\Working Set - Private", 0, &counter);
    return code ? lacks("pdh.dll has no counter of private working sets", code) : 0;
}

static int hns(void)
{
    HMODULE networks = LoadLibraryA("computenetwork.dll"), compute = LoadLibraryA("vmcompute.dll");

    if (!networks || !GetProcAddress(networks, "HcnEnumerateNetworks"))
        return lacks("there is no computenetwork.dll", GetLastError());
    if (!compute || !GetProcAddress(compute, "HNSCall"))
        return lacks("there is no HNSCall", GetLastError());
    return 0;
}

static int elevation(void)
{
    TOKEN_ELEVATION elevation = {0};
    DWORD size;
    HANDLE token;

    OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token);
    GetTokenInformation(token, TokenElevation, &elevation, sizeof elevation, &size);
    CloseHandle(token);
    return elevation.TokenIsElevated ? 0 : lacks("a program has no administrator's full rights", 0);
}

/* The exit code of a command; its output is left out. */
static DWORD run(const WCHAR *words)
{
    WCHAR command[1024];
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    DWORD code = 251;

    wcsncpy(command, words, ARRAYSIZE(command) - 1);
    command[ARRAYSIZE(command) - 1] = 0;
    if (!CreateProcessW(NULL, command, NULL, NULL, FALSE, 0, NULL, NULL, &start, &process))
        return 250;
    WaitForSingleObject(process.hProcess, 120000);
    GetExitCodeProcess(process.hProcess, &code);
    return code;
}

static int shutdown_program(void)
{
    DWORD code = run(L"C:\\windows\\system32\\shutdown.exe /a");

    return code == ERROR_NO_SHUTDOWN_IN_PROGRESS ? 0 : lacks("shutdown.exe does nothing", code);
}

static int powershell(void)
{
    DWORD code = run(L"C:\\windows\\System32\\WindowsPowerShell\\v1.0\\powershell.exe -NoProfile "
                     L"-NonInteractive \"exit 7\"");

    return code == 7 ? 0 : lacks("powershell.exe runs nothing", code);
}

static SC_HANDLE make_service(void)
{
    WCHAR program[MAX_PATH], command[MAX_PATH + 32];
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_ALL_ACCESS);
    HKEY key;

    GetModuleFileNameW(NULL, program, ARRAYSIZE(program));
    _snwprintf(command, ARRAYSIZE(command), L"\"%ls\" serve", program);
    CreateServiceW(manager, SERVICE, SERVICE, SERVICE_ALL_ACCESS, SERVICE_WIN32_OWN_PROCESS,
                   SERVICE_DEMAND_START, SERVICE_ERROR_NORMAL, command, NULL, NULL, NULL, NULL, NULL);
    if (!RegOpenKeyW(HKEY_LOCAL_MACHINE, L"SYSTEM\\CurrentControlSet\\Services\\" SERVICE, &key)) {
        RegSetValueExW(key, L"Environment", 0, REG_MULTI_SZ, (BYTE *)L"HYBRIDLAB_PROBE=yes\0", 42);
        RegCloseKey(key);
    }
    return OpenServiceW(manager, SERVICE, SERVICE_ALL_ACCESS);
}

/* Look at the service until its state is `state`, at most ten seconds; the last state seen. */
static DWORD await_state(SC_HANDLE service, DWORD state)
{
    SERVICE_STATUS status = {0};
    int look;

    for (look = 0; look < 100; look++) {
        QueryServiceStatus(service, &status);
        if (status.dwCurrentState == state)
            break;
        Sleep(100);
    }
    return status.dwCurrentState;
}

static int service_dependencies(void)
{
    SC_HANDLE service = make_service(), opened;
    static BYTE buffer[8192];
    QUERY_SERVICE_CONFIGW *config = (void *)buffer;
    DWORD needed;
    int code = 0;

    ChangeServiceConfigW(service, SERVICE_NO_CHANGE, SERVICE_NO_CHANGE, SERVICE_NO_CHANGE, NULL, NULL,
                         NULL, L"hybridlab-other\0", NULL, NULL, NULL);
    opened = OpenServiceW(OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT), SERVICE, SERVICE_QUERY_CONFIG);
    if (!QueryServiceConfigW(opened, config, sizeof buffer, &needed) || !config->lpDependencies ||
        wcscmp(config->lpDependencies, L"hybridlab-other"))
        code = lacks("QueryServiceConfigW does not say what a service depends on", GetLastError());
    CloseServiceHandle(opened);
    DeleteService(service);
    return code;
}

static int service_environment(void)
{
    SC_HANDLE service = make_service();
    SERVICE_STATUS status;
    DWORD state;
    int code = 0;

    DeleteFileW(FOLDER L"-environment");
    if (!StartServiceW(service, 0, NULL))
        code = lacks("a service does not start", GetLastError());
    state = await_state(service, SERVICE_RUNNING);
    if (!code && state != SERVICE_RUNNING)
        code = lacks("a service does not run", state);
    if (!code && GetFileAttributesW(FOLDER L"-environment") == INVALID_FILE_ATTRIBUTES)
        code = lacks("a service's program has no variable of its registry value Environment", 0);
    ControlService(service, SERVICE_CONTROL_STOP, &status);
    await_state(service, SERVICE_STOPPED);
    DeleteService(service);
    DeleteFileW(FOLDER L"-environment");
    return code;
}

static int service_exit(void)
{
    SC_HANDLE service = make_service();
    SERVICE_STATUS status;
    DWORD state;
    int code = 0;

    StartServiceW(service, 0, NULL);
    await_state(service, SERVICE_RUNNING);
    ControlService(service, SERVICE_CONTROL_STOP, &status);
    state = await_state(service, SERVICE_STOPPED);
    if (state != SERVICE_STOPPED)
        code = lacks("a service whose program has ended is not STOPPED", state);
    DeleteService(service);
    return code;
}

static int sc_config(void)
{
    SC_HANDLE service = make_service();
    DWORD code = run(L"sc.exe config " SERVICE L" start= demand");

    DeleteService(service);
    return code ? lacks("sc.exe has no 'config'", code) : 0;
}

static int sc_failure(void)
{
    SC_HANDLE service = make_service();
    DWORD code = run(L"sc.exe failure " SERVICE L" reset= 0 actions= restart/10000"), size = 0;
    HKEY key = NULL;

    RegOpenKeyW(HKEY_LOCAL_MACHINE, L"SYSTEM\\CurrentControlSet\\Services\\" SERVICE, &key);
    if (!code)
        code = (DWORD)RegQueryValueExW(key, L"FailureActions", NULL, NULL, NULL, &size);
    RegCloseKey(key);
    DeleteService(service);
    return code ? lacks("failure actions are not stored", code) : 0;
}

/* As a service: runs until it is stopped, and ends without saying that it has. */

static SERVICE_STATUS_HANDLE handle;

static void tell(DWORD state)
{
    SERVICE_STATUS status = {.dwServiceType = SERVICE_WIN32_OWN_PROCESS,
                             .dwCurrentState = state,
                             .dwControlsAccepted = SERVICE_ACCEPT_STOP};

    SetServiceStatus(handle, &status);
}

static DWORD WINAPI control(DWORD code, DWORD type, void *data, void *context)
{
    (void)type, (void)data, (void)context;
    if (code == SERVICE_CONTROL_STOP) {
        tell(SERVICE_STOP_PENDING);
        ExitProcess(0);
    }
    return NO_ERROR;
}

static void WINAPI serve(DWORD count, WCHAR **words)
{
    (void)count, (void)words;
    if (GetEnvironmentVariableW(L"HYBRIDLAB_PROBE", NULL, 0))
        CloseHandle(CreateFileW(FOLDER L"-environment", GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL));
    handle = RegisterServiceCtrlHandlerExW(SERVICE, control, NULL);
    tell(SERVICE_RUNNING);
}

static const struct {
    const char *name;
    int (*look)(void);
} PROBES[] = {
    {"adapters", adapters},
    {"counters", counters},
    {"elevation", elevation},
    {"hns", hns},
    {"pages", pages},
    {"pipes", pipes},
    {"powershell", powershell},
    {"sc-config", sc_config},
    {"sc-failure", sc_failure},
    {"service-dependencies", service_dependencies},
    {"service-environment", service_environment},
    {"service-exit", service_exit},
    {"shutdown", shutdown_program},
    {"sockets", unix_sockets},
    {"stacks", stacks},
    {"symlinks", symlinks},
    {"udp", udp},
};

int main(int count, char **words)
{
    SERVICE_TABLE_ENTRYW table[] = {{(WCHAR *)SERVICE, serve}, {NULL, NULL}};
    WSADATA winsock;
    size_t number;

    LoadLibraryA("bcryptprimitives.dll"); /* as a Go program does: stand-ins come by it */
    WSAStartup(MAKEWORD(2, 2), &winsock);
    if (count > 1 && !strcmp(words[1], "serve"))
        return !StartServiceCtrlDispatcherW(table);
    for (number = 0; count > 1 && number < ARRAYSIZE(PROBES); number++)
        if (!strcmp(words[1], PROBES[number].name))
            return PROBES[number].look();
    fprintf(stderr, "probe: name a probe:");
    for (number = 0; number < ARRAYSIZE(PROBES); number++)
        fprintf(stderr, " %s", PROBES[number].name);
    fprintf(stderr, "\n");
    return 2;
}
