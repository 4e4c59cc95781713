/* hybridlab-sockets.dll: Unix domain sockets.

   Windows: since 10.0.17134 (1803) has AF_UNIX stream sockets: bind makes a file, connect names it.
   Wine 10.0: socket(AF_UNIX) fails with WSAEAFNOSUPPORT (10047). A kubelet ends: "Failed to start
   ContainerManager", since its device manager listens on one.
   Probe: sockets.

   A socket of that family is a TCP socket of 127.0.0.1, and the file has its port. Whoever may read
   the file may connect, and so may whoever guesses the port: only the node's own programs use it. */
#include "hooks.h"

#include <stdio.h>
#include <string.h>

enum { UNIX_FAMILY = 1, PLACES = 256 };

typedef struct {
    SHORT family;
    char path[108];
} unix_address;

static struct {
    SOCKET socket; /* 0: free */
    unix_address address;
} places[PLACES];
static CRITICAL_SECTION lock;

static SOCKET(WINAPI *windows_socket)(int, int, int);
static SOCKET(WINAPI *windows_WSASocketW)(int, int, int, void *, GROUP, DWORD);
static int(WINAPI *windows_bind)(SOCKET, const struct sockaddr *, int);
static int(WINAPI *windows_connect)(SOCKET, const struct sockaddr *, int);
static int(WINAPI *windows_getsockname)(SOCKET, struct sockaddr *, int *);
static int(WINAPI *windows_closesocket)(SOCKET);

/* Call with the lock held. */
static unix_address *place_of(SOCKET socket)
{
    int number;

    for (number = 0; number < PLACES; number++)
        if (places[number].socket == socket)
            return &places[number].address;
    return NULL;
}

static SOCKET remember(SOCKET socket)
{
    int number;

    if (socket == INVALID_SOCKET)
        return socket;
    EnterCriticalSection(&lock);
    for (number = 0; number < PLACES && places[number].socket; number++)
        continue;
    if (number < PLACES) {
        memset(&places[number], 0, sizeof places[number]);
        places[number].socket = socket;
        places[number].address.family = UNIX_FAMILY;
    }
    LeaveCriticalSection(&lock);
    if (number < PLACES)
        return socket;
    windows_closesocket(socket);
    WSASetLastError(WSAEMFILE);
    return INVALID_SOCKET;
}

static struct sockaddr_in loopback(u_short port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static unix_address copied(const struct sockaddr *address, int size)
{
    unix_address copy = {0};

    memcpy(&copy, address, size < (int)sizeof copy - 1 ? size : (int)sizeof copy - 1);
    return copy;
}

static SOCKET WINAPI our_socket(int family, int type, int protocol)
{
    if (family != UNIX_FAMILY)
        return windows_socket(family, type, protocol);
    return remember(windows_socket(AF_INET, SOCK_STREAM, IPPROTO_TCP));
}

static SOCKET WINAPI our_WSASocketW(int family, int type, int protocol, void *info, GROUP group,
                                    DWORD flags)
{
    if (family != UNIX_FAMILY)
        return windows_WSASocketW(family, type, protocol, info, group, flags);
    return remember(windows_WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, group, flags));
}

static int WINAPI our_bind(SOCKET socket, const struct sockaddr *address, int size)
{
    struct sockaddr_in own = loopback(0);
    int length = sizeof own;
    unix_address *place;
    unix_address wanted;
    FILE *file;

    if (address->sa_family != UNIX_FAMILY)
        return windows_bind(socket, address, size);
    wanted = copied(address, size);
    if (windows_bind(socket, (struct sockaddr *)&own, sizeof own))
        return SOCKET_ERROR;
    windows_getsockname(socket, (struct sockaddr *)&own, &length);
    file = fopen(wanted.path, "wxb"); /* a file that is there: in use, as Windows says */
    if (!file) {
        WSASetLastError(WSAEADDRINUSE);
        return SOCKET_ERROR;
    }
    fprintf(file, "%u", ntohs(own.sin_port));
    fclose(file);
    EnterCriticalSection(&lock);
    if ((place = place_of(socket)))
        *place = wanted;
    LeaveCriticalSection(&lock);
    return 0;
}

static int WINAPI our_connect(SOCKET socket, const struct sockaddr *address, int size)
{
    struct sockaddr_in far_end;
    unix_address wanted;
    unsigned port = 0;
    FILE *file;

    if (address->sa_family != UNIX_FAMILY)
        return windows_connect(socket, address, size);
    wanted = copied(address, size);
    file = fopen(wanted.path, "rb");
    if (!file || fscanf(file, "%u", &port) != 1)
        port = 0;
    if (file)
        fclose(file);
    if (!port) {
        WSASetLastError(WSAECONNREFUSED);
        return SOCKET_ERROR;
    }
    far_end = loopback((u_short)port);
    return windows_connect(socket, (struct sockaddr *)&far_end, sizeof far_end);
}

static int WINAPI our_getsockname(SOCKET socket, struct sockaddr *address, int *size)
{
    unix_address *place;
    int known = 0, length;

    EnterCriticalSection(&lock);
    if ((place = place_of(socket))) {
        known = 1;
        length = (int)(sizeof place->family + strlen(place->path) + 1);
        memset(address, 0, *size);
        memcpy(address, place, length < *size ? length : *size);
        *size = length;
    }
    LeaveCriticalSection(&lock);
    return known ? 0 : windows_getsockname(socket, address, size);
}

static int WINAPI our_closesocket(SOCKET socket)
{
    int number;

    EnterCriticalSection(&lock);
    for (number = 0; socket && number < PLACES; number++)
        if (places[number].socket == socket)
            places[number].socket = 0;
    LeaveCriticalSection(&lock);
    return windows_closesocket(socket);
}

#define REPLACE(name) \
    windows_##name = (void *)replace_export(winsock, #name, (void *)our_##name)

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    HMODULE winsock;

    (void)instance, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH)
        return TRUE;
    InitializeCriticalSection(&lock);
    winsock = LoadLibraryA("ws2_32.dll");
    REPLACE(socket);
    REPLACE(WSASocketW);
    REPLACE(bind);
    REPLACE(connect);
    REPLACE(getsockname);
    REPLACE(closesocket);
    return TRUE;
}
