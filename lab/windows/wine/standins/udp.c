/* hybridlab-udp.dll: an option of UDP sockets.

   Windows: SIO_UDP_NETRESET switches off that an ICMP "TTL exceeded" ends a read.
   Wine 10.0: refuses it with WSAEOPNOTSUPP (10045); a Go program (1.24) can then listen at no UDP
   port: "wsaioctl: winapi error #10045".
   Probe: udp.

   Linux reports no such error to a socket that is not connected, so switching it off is no change. */
#include "hooks.h"

static int(WINAPI *windows_WSAIoctl)(SOCKET, DWORD, void *, DWORD, void *, DWORD, DWORD *, OVERLAPPED *,
                                     LPWSAOVERLAPPED_COMPLETION_ROUTINE);

enum { UDP_NETRESET = (int)0x9800000F }; /* SIO_UDP_NETRESET of mswsock.h */

static int WINAPI our_WSAIoctl(SOCKET socket, DWORD code, void *in, DWORD in_size, void *out,
                               DWORD out_size, DWORD *returned, OVERLAPPED *overlapped,
                               LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    if ((int)code != UDP_NETRESET)
        return windows_WSAIoctl(socket, code, in, in_size, out, out_size, returned, overlapped, done);
    if (returned)
        *returned = 0;
    return 0;
}

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    (void)instance, (void)reserved;
    if (reason == DLL_PROCESS_ATTACH)
        windows_WSAIoctl =
            (void *)replace_export(LoadLibraryA("ws2_32.dll"), "WSAIoctl", (void *)our_WSAIoctl);
    return TRUE;
}
