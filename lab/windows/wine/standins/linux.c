/* ctr.exe, hybridlab-task.exe: a program of the node's Linux, by its name.

   Windows: ctr.exe talks to containerd.exe at its pipe; shutdown.exe restarts the machine.
   Wine: see containerd.c and shutdown.c. A Windows program cannot wait for a Linux program that it
   starts.
   Probe: none; no Wine has containers.

   The words are carried to lab/windows/wine/runtime, which runs the program with them; a path on a
   drive is the file's path there. The number of words on a line, then the words, this program's name
   first, each ended by a zero; the answer, until the connection ends: the exit code on a line, then the
   output. */
#include <winsock2.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMAND_PORT = 10011 };

/* This program's name without folder and ending. */
static char *own_name(char *path)
{
    char *name = path, *at;

    for (at = path; *at; at++)
        if (*at == '\\' || *at == '/')
            name = at + 1;
    if ((at = strrchr(name, '.')))
        *at = 0;
    return name;
}

int main(int count, char **words)
{
    char path[MAX_PATH];
    struct sockaddr_in runtime = {.sin_family = AF_INET, .sin_port = htons(COMMAND_PORT)};
    char bytes[4096], *end;
    WSADATA winsock;
    SOCKET connection;
    int size, at, code = -1;

    WSAStartup(MAKEWORD(2, 2), &winsock);
    connection = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    runtime.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(connection, (struct sockaddr *)&runtime, sizeof runtime)) {
        fprintf(stderr, "nothing answers at port %d of 127.0.0.1\n", COMMAND_PORT);
        return 1;
    }
    GetModuleFileNameA(NULL, path, sizeof path);
    words[0] = own_name(path);
    size = snprintf(bytes, sizeof bytes, "%d\n", count);
    send(connection, bytes, size, 0);
    for (at = 0; at < count; at++)
        send(connection, words[at], (int)strlen(words[at]) + 1, 0);
    for (at = 0; at < (int)sizeof bytes - 1 && recv(connection, bytes + at, 1, 0) == 1; at++)
        if (bytes[at] == '\n')
            break;
    bytes[at] = 0;
    code = (int)strtol(bytes, &end, 10);
    if (end == bytes) {
        fprintf(stderr, "no answer\n");
        return 1;
    }
    while ((size = recv(connection, bytes, sizeof bytes, 0)) > 0)
        fwrite(bytes, 1, (size_t)size, stdout);
    return code;
}
