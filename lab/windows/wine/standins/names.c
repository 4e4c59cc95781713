/* hybridlab-names.exe: the IPv4 addresses of names, as Windows' resolver finds them.

   Windows: curl.exe asks it.
   Wine 10.0: has no curl.exe; windows-run calls Linux's, which would ask Linux's resolver.
   Probe: none; no Wine has curl.exe.

   A line for each name: the name and its addresses, or "-" if there is no such name. None for a name
   about which no server answers. */
#include <winsock2.h>
#include <ws2tcpip.h>

#include <stdio.h>

int wmain(int count, WCHAR **names)
{
    ADDRINFOW wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *first, *each;
    WSADATA winsock;
    WCHAR address[INET_ADDRSTRLEN];
    int at, code;

    WSAStartup(MAKEWORD(2, 2), &winsock);
    for (at = 1; at < count; at++) {
        code = GetAddrInfoW(names[at], NULL, &wanted, &first);
        if (code) {
            if (code != WSATRY_AGAIN)
                printf("%ls -\n", names[at]);
            continue;
        }
        printf("%ls", names[at]);
        for (each = first; each; each = each->ai_next) {
            InetNtopW(AF_INET, &((struct sockaddr_in *)each->ai_addr)->sin_addr, address, INET_ADDRSTRLEN);
            printf(" %ls", address);
        }
        printf("\n");
        FreeAddrInfoW(first);
    }
    return 0;
}
