/* ctr.exe: containerd's command line.

   Windows: ctr.exe talks to containerd.exe at its pipe.
   Wine: see containerd.c.
   Probe: none; no Wine has containers.

   The words are carried to lab/windows/wine/runtime, which runs Linux's ctr with them; a path on a
   drive is the file's path there. The words, each ended by a zero, and an empty one; the answer, until
   the connection ends: the exit code on a line, then the output. */
#include <winsock2.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMAND_PORT = 10011 };

int main(int count, char **words)
{
    struct sockaddr_in runtime = {.sin_family = AF_INET, .sin_port = htons(COMMAND_PORT)};
    char bytes[4096], *end;
    WSADATA winsock;
    SOCKET connection;
    int size, at, code = -1;

    WSAStartup(MAKEWORD(2, 2), &winsock);
    connection = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    runtime.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(connection, (struct sockaddr *)&runtime, sizeof runtime)) {
        fprintf(stderr, "ctr: nothing answers at port %d of 127.0.0.1\n", COMMAND_PORT);
        return 1;
    }
    for (at = 1; at < count; at++)
        send(connection, words[at], (int)strlen(words[at]) + 1, 0);
    send(connection, "", 1, 0);
    for (at = 0; at < (int)sizeof bytes - 1 && recv(connection, bytes + at, 1, 0) == 1; at++)
        if (bytes[at] == '\n')
            break;
    bytes[at] = 0;
    code = (int)strtol(bytes, &end, 10);
    if (end == bytes) {
        fprintf(stderr, "ctr: no answer\n");
        return 1;
    }
    while ((size = recv(connection, bytes, sizeof bytes, 0)) > 0)
        fwrite(bytes, 1, (size_t)size, stdout);
    return code;
}
