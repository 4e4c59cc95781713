/* containerd.exe: the container runtime's service.

   Windows: containerd.exe serves the CRI at \\.\pipe\containerd-containerd; pods are Windows
   containers.
   Wine: the real program serves its pipe and can start no container (no HCS, no BackupWrite).
   Probe: none; no Wine has containers.

   Pods are Linux containers that run Windows programs on Wine, by Linux's containerd behind
   lab/windows/wine/runtime, which translates the CRI. This program carries the pipe's bytes to it,
   over TCP on 127.0.0.1, and answers what the lab's step "containerd" asks of containerd.exe:
   --version, config default, --register-service. Without its pipe it ends with the error, as the real
   one does, and is started again by its failure actions. */
#include <winsock2.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIPE L"\\\\.\\pipe\\containerd-containerd"
#define SERVICE L"containerd"

enum { RUNTIME_PORT = 10010, BUFFER = 1 << 16 };

static const char DEFAULT_CONFIGURATION[] =
    "version = 3\n"
    "# Read by nobody: pods are run by Linux's containerd, which has a configuration of its own.\n"
    "[plugins]\n"
    "  [plugins.'io.containerd.cri.v1.images']\n"
    "    [plugins.'io.containerd.cri.v1.images'.pinned_images]\n"
    "      sandbox = ''\n"
    "    [plugins.'io.containerd.cri.v1.images'.registry]\n"
    "      config_path = ''\n"
    "  [plugins.'io.containerd.cri.v1.runtime']\n"
    "    [plugins.'io.containerd.cri.v1.runtime'.cni]\n"
    "      bin_dirs = []\n"
    "      conf_dir = ''\n";

typedef struct {
    HANDLE pipe, ended; /* ended: set once either thread ends */
    SOCKET socket;
    LONG users; /* of the two threads */
} connection;

static void leave(connection *shared)
{
    shutdown(shared->socket, SD_BOTH);
    SetEvent(shared->ended);
    if (InterlockedDecrement(&shared->users))
        return;
    CloseHandle(shared->pipe);
    CloseHandle(shared->ended);
    closesocket(shared->socket);
    free(shared);
}

/* Reading and writing one pipe at once needs overlapped calls. Returns the bytes; 0 at the end of the
   pipe, or of the connection. */
static DWORD transfer(connection *shared, BOOL reads, char *bytes, DWORD size)
{
    OVERLAPPED overlapped = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    DWORD done = 0;
    BOOL started = reads ? ReadFile(shared->pipe, bytes, size, NULL, &overlapped)
                         : WriteFile(shared->pipe, bytes, size, NULL, &overlapped);

    if (started || GetLastError() == ERROR_IO_PENDING) {
        HANDLE either[] = {overlapped.hEvent, shared->ended};

        if (WaitForMultipleObjects(ARRAYSIZE(either), either, FALSE, INFINITE) != WAIT_OBJECT_0)
            CancelIoEx(shared->pipe, &overlapped);
        if (!GetOverlappedResult(shared->pipe, &overlapped, &done, TRUE))
            done = 0;
    }
    CloseHandle(overlapped.hEvent);
    return done;
}

static BOOL send_all(SOCKET socket, const char *bytes, int size)
{
    while (size > 0) {
        int sent = send(socket, bytes, size, 0);

        if (sent <= 0)
            return FALSE;
        bytes += sent;
        size -= sent;
    }
    return TRUE;
}

static DWORD WINAPI to_runtime(void *argument)
{
    connection *shared = argument;
    char bytes[BUFFER];
    DWORD size;

    while ((size = transfer(shared, TRUE, bytes, sizeof bytes)))
        if (!send_all(shared->socket, bytes, (int)size))
            break;
    leave(shared);
    return 0;
}

static DWORD WINAPI from_runtime(void *argument)
{
    connection *shared = argument;
    char bytes[BUFFER];
    int size;

    while ((size = recv(shared->socket, bytes, sizeof bytes, 0)) > 0) {
        char *rest = bytes;

        while (size > 0) {
            DWORD written = transfer(shared, FALSE, rest, (DWORD)size);

            if (!written)
                break;
            rest += written;
            size -= (int)written;
        }
        if (size)
            break;
    }
    leave(shared);
    return 0;
}

static SOCKET connect_runtime(void)
{
    struct sockaddr_in runtime = {.sin_family = AF_INET, .sin_port = htons(RUNTIME_PORT)};
    SOCKET made = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);

    runtime.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!connect(made, (struct sockaddr *)&runtime, sizeof runtime))
        return made;
    closesocket(made);
    return INVALID_SOCKET;
}

static HANDLE next_pipe(void)
{
    return CreateNamedPipeW(PIPE, PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED,
                            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT, PIPE_UNLIMITED_INSTANCES,
                            BUFFER, BUFFER, 0, NULL);
}

static BOOL wait_for_client(HANDLE pipe)
{
    OVERLAPPED overlapped = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    DWORD done;
    BOOL connected = ConnectNamedPipe(pipe, &overlapped) || GetLastError() == ERROR_PIPE_CONNECTED ||
                     (GetLastError() == ERROR_IO_PENDING &&
                      GetOverlappedResult(pipe, &overlapped, &done, TRUE));

    CloseHandle(overlapped.hEvent);
    return connected;
}

static SERVICE_STATUS_HANDLE handle;
static HANDLE told_to_stop;
static DWORD failure; /* why the pipe cannot be served any longer */

static DWORD WINAPI serve(void *argument)
{
    HANDLE pipe;

    (void)argument;
    while ((pipe = next_pipe()) != INVALID_HANDLE_VALUE) {
        connection *shared;
        SOCKET socket;

        if (!wait_for_client(pipe) || (socket = connect_runtime()) == INVALID_SOCKET) {
            CloseHandle(pipe);
            continue;
        }
        shared = calloc(1, sizeof *shared);
        shared->pipe = pipe;
        shared->ended = CreateEventW(NULL, TRUE, FALSE, NULL);
        shared->socket = socket;
        shared->users = 2;
        CloseHandle(CreateThread(NULL, 0, to_runtime, shared, 0, NULL));
        CloseHandle(CreateThread(NULL, 0, from_runtime, shared, 0, NULL));
    }
    failure = GetLastError();
    SetEvent(told_to_stop);
    return 1;
}

static void report(DWORD state)
{
    SERVICE_STATUS status = {.dwServiceType = SERVICE_WIN32_OWN_PROCESS, .dwCurrentState = state};

    if (state == SERVICE_STOPPED)
        status.dwWin32ExitCode = failure;
    if (state == SERVICE_RUNNING)
        status.dwControlsAccepted = SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN;
    SetServiceStatus(handle, &status);
}

/* It has to return: whoever stops the service is answered after it. */
static void WINAPI control(DWORD code)
{
    if (code != SERVICE_CONTROL_STOP && code != SERVICE_CONTROL_SHUTDOWN) {
        report(SERVICE_RUNNING);
        return;
    }
    report(SERVICE_STOP_PENDING);
    SetEvent(told_to_stop);
}

static void WINAPI run(DWORD count, WCHAR **words)
{
    (void)count, (void)words;
    told_to_stop = CreateEventW(NULL, TRUE, FALSE, NULL);
    handle = RegisterServiceCtrlHandlerW(SERVICE, control);
    CloseHandle(CreateThread(NULL, 0, serve, NULL, 0, NULL));
    report(SERVICE_RUNNING);
    WaitForSingleObject(told_to_stop, INFINITE);
    report(SERVICE_STOPPED);
}

static int register_service(const WCHAR *log)
{
    WCHAR command[1024], program[MAX_PATH];
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CREATE_SERVICE);

    GetModuleFileNameW(NULL, program, ARRAYSIZE(program));
    _snwprintf(command, ARRAYSIZE(command) - 1, L"\"%ls\" --run-service --log-file %ls", program, log);
    command[ARRAYSIZE(command) - 1] = 0;
    if (manager && CreateServiceW(manager, SERVICE, L"containerd", SERVICE_ALL_ACCESS,
                                  SERVICE_WIN32_OWN_PROCESS, SERVICE_AUTO_START, SERVICE_ERROR_NORMAL,
                                  command, NULL, NULL, NULL, NULL, NULL))
        return 0;
    fprintf(stderr, "containerd: cannot register the service: error %lu\n", GetLastError());
    return 1;
}

int wmain(int count, WCHAR **words)
{
    SERVICE_TABLE_ENTRYW table[] = {{(WCHAR *)SERVICE, run}, {NULL, NULL}};
    WSADATA winsock;

    WSAStartup(MAKEWORD(2, 2), &winsock);
    if (count > 1 && !wcscmp(words[1], L"--run-service"))
        return !StartServiceCtrlDispatcherW(table);
    if (count > 1 && !wcscmp(words[1], L"--register-service"))
        return register_service(count > 3 ? words[3] : L"C:\\containerd.log");
    if (count > 2 && !wcscmp(words[1], L"config") && !wcscmp(words[2], L"default"))
        return fputs(DEFAULT_CONFIGURATION, stdout) < 0;
    if (count > 1 && !wcscmp(words[1], L"--version"))
        return puts("containerd of hybridlab's Wine nodes: carries the CRI to Linux's containerd") < 0;
    fprintf(stderr, "containerd: a stand-in: it has --version, config default, --register-service "
                    "and --run-service\n");
    return 2;
}
