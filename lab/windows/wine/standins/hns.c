/* computenetwork.dll and vmcompute.dll: the Host Networking Service's interface.

   Windows: networks, endpoints, namespaces, load balancers and routes are made through Hcn* functions
   (version 2, computenetwork.dll) and HNSCall (version 1, vmcompute.dll), which ask the service hns.
   Wine: has neither ("Module not found", 0x7e).
   Probe: hns.

   Each call is carried to the node's HNS daemon (lab/windows/wine/hns) over TCP on 127.0.0.1, and
   its answer back. Documents pass as they are; nothing is decided here.

   A question: operation, object and length of the document, each on a line; then the document. The
   answer, until the connection ends: HRESULT in hex and GUID, each on a line; then the document, or
   the error's. */
#include <winsock2.h>
#include <windows.h>
#include <objbase.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __declspec(dllexport) HRESULT WINAPI

enum { DAEMON_PORT = 18081, GUID_LENGTH = 36, OBJECT_LENGTH = 512 };

static const HRESULT SERVER_UNAVAILABLE = (HRESULT)0x800706BA; /* RPC_S_SERVER_UNAVAILABLE */

typedef struct {
    HRESULT result;
    char guid[GUID_LENGTH + 1];
    char *document;
} answer;

static char *to_utf8(const WCHAR *text)
{
    int size = text ? WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL) : 1;
    char *made = calloc(1, (size_t)size);

    if (text)
        WideCharToMultiByte(CP_UTF8, 0, text, -1, made, size, NULL, NULL);
    return made;
}

/* Callers release it with CoTaskMemFree. */
static WCHAR *to_wide(const char *text)
{
    int size = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    WCHAR *made = CoTaskMemAlloc((size_t)size * sizeof *made);

    MultiByteToWideChar(CP_UTF8, 0, text, -1, made, size);
    return made;
}

static void write_guid(const GUID *guid, char text[GUID_LENGTH + 1])
{
    const BYTE *rest = guid->Data4;

    snprintf(text, GUID_LENGTH + 1, "%08lx-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x", guid->Data1,
             guid->Data2, guid->Data3, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6],
             rest[7]);
}

static BOOL send_all(SOCKET connection, const char *bytes, size_t size)
{
    while (size) {
        int sent = send(connection, bytes, (int)size, 0);

        if (sent <= 0)
            return FALSE;
        bytes += sent;
        size -= (size_t)sent;
    }
    return TRUE;
}

static char *receive_all(SOCKET connection)
{
    size_t room = 1 << 16, length = 0;
    char *text = malloc(room);
    int count;

    while ((count = recv(connection, text + length, (int)(room - length - 1), 0)) > 0) {
        length += (size_t)count;
        if (room - length < 4096)
            text = realloc(text, room *= 2);
    }
    text[length] = 0;
    return text;
}

static answer read_answer(char *text)
{
    answer read = {.result = SERVER_UNAVAILABLE, .document = NULL};
    char *guid = strchr(text, '\n'), *document = guid ? strchr(guid + 1, '\n') : NULL;

    if (document) {
        read.result = (HRESULT)strtoul(text, NULL, 16);
        *document++ = 0;
        strncpy(read.guid, guid + 1, GUID_LENGTH);
        read.document = _strdup(document);
    }
    free(text);
    return read;
}

static answer ask(const char *operation, const char *object, const WCHAR *document)
{
    struct sockaddr_in daemon = {.sin_family = AF_INET, .sin_port = htons(DAEMON_PORT)};
    answer unanswered = {.result = SERVER_UNAVAILABLE};
    char head[OBJECT_LENGTH + 64], *body = to_utf8(document);
    WSADATA winsock;
    SOCKET connection;
    BOOL sent = FALSE;
    char *text;

    WSAStartup(MAKEWORD(2, 2), &winsock); /* counted: repeating it is harmless */
    daemon.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connection = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    if (!connect(connection, (struct sockaddr *)&daemon, sizeof daemon)) {
        snprintf(head, sizeof head, "%s\n%s\n%u\n", operation, object, (unsigned)strlen(body));
        sent = send_all(connection, head, strlen(head)) && send_all(connection, body, strlen(body));
    }
    free(body);
    text = sent ? receive_all(connection) : NULL;
    closesocket(connection);
    return text ? read_answer(text) : unanswered;
}

/* Hand an answer over: the document to `out` when it succeeded, else to `error`. */
static HRESULT finish(answer *received, WCHAR **out, WCHAR **error)
{
    if (out)
        *out = NULL;
    if (error)
        *error = NULL;
    if (received->document && *received->document) {
        WCHAR **place = SUCCEEDED(received->result) ? out : error;

        if (place)
            *place = to_wide(received->document);
    }
    free(received->document);
    return received->result;
}

/* A handle is the object's kind and GUID: "networks 5e2f...". */
static HRESULT finish_open(answer *received, const char *kind, void **handle, WCHAR **error)
{
    char object[OBJECT_LENGTH];

    if (SUCCEEDED(received->result)) {
        snprintf(object, sizeof object, "%s %s", kind, received->guid);
        *handle = _strdup(object);
    }
    return finish(received, NULL, error);
}

static void name_object(const char *kind, const GUID *guid, char object[OBJECT_LENGTH])
{
    char text[GUID_LENGTH + 1];

    write_guid(guid, text);
    snprintf(object, OBJECT_LENGTH, "%s %s", kind, text);
}

static HRESULT create(const char *kind, const char *parent, const GUID *guid, const WCHAR *settings,
                      void **handle, WCHAR **error)
{
    static const GUID none;
    char object[OBJECT_LENGTH], text[GUID_LENGTH + 1] = "";
    answer received;

    if (guid && memcmp(guid, &none, sizeof none))
        write_guid(guid, text);
    snprintf(object, sizeof object, "%s %s %s", kind, *text ? text : "-", parent);
    received = ask("create", object, settings);
    return finish_open(&received, kind, handle, error);
}

static HRESULT enumerate(const char *kind, const WCHAR *query, WCHAR **guids, WCHAR **error)
{
    answer received = ask("enumerate", kind, query);

    return finish(&received, guids, error);
}

static HRESULT open_object(const char *kind, const GUID *guid, void **handle, WCHAR **error)
{
    char object[OBJECT_LENGTH];
    answer received;

    name_object(kind, guid, object);
    received = ask("open", object, NULL);
    return finish_open(&received, kind, handle, error);
}

static HRESULT delete_object(const char *kind, const GUID *guid, WCHAR **error)
{
    char object[OBJECT_LENGTH];
    answer received;

    name_object(kind, guid, object);
    received = ask("delete", object, NULL);
    return finish(&received, NULL, error);
}

static HRESULT modify(void *handle, const WCHAR *settings, WCHAR **error)
{
    answer received = ask("modify", handle, settings);

    return finish(&received, NULL, error);
}

static HRESULT query(void *handle, const WCHAR *query, WCHAR **properties, WCHAR **error)
{
    answer received = ask("query", handle, query);

    return finish(&received, properties, error);
}

static HRESULT close_handle(void *handle)
{
    free(handle);
    return S_OK;
}

/* The functions that every kind of object has (computenetwork.h). */
#define FUNCTIONS(Name, Names, kind)                                                             \
    EXPORTED HcnEnumerate##Names(const WCHAR *filter, WCHAR **guids, WCHAR **error)               \
    {                                                                                            \
        return enumerate(kind, filter, guids, error);                                            \
    }                                                                                            \
    EXPORTED HcnOpen##Name(const GUID *guid, void **handle, WCHAR **error)                        \
    {                                                                                            \
        return open_object(kind, guid, handle, error);                                           \
    }                                                                                            \
    EXPORTED HcnModify##Name(void *handle, const WCHAR *settings, WCHAR **error)                  \
    {                                                                                            \
        return modify(handle, settings, error);                                                  \
    }                                                                                            \
    EXPORTED HcnQuery##Name##Properties(void *handle, const WCHAR *filter, WCHAR **properties,    \
                                        WCHAR **error)                                           \
    {                                                                                            \
        return query(handle, filter, properties, error);                                         \
    }                                                                                            \
    EXPORTED HcnDelete##Name(const GUID *guid, WCHAR **error)                                     \
    {                                                                                            \
        return delete_object(kind, guid, error);                                                 \
    }                                                                                            \
    EXPORTED HcnClose##Name(void *handle)                                                         \
    {                                                                                            \
        return close_handle(handle);                                                             \
    }

#define CREATION(Name, kind)                                                                     \
    EXPORTED HcnCreate##Name(const GUID *guid, const WCHAR *settings, void **handle,              \
                             WCHAR **error)                                                      \
    {                                                                                            \
        return create(kind, "", guid, settings, handle, error);                                  \
    }

FUNCTIONS(Network, Networks, "networks")
CREATION(Network, "networks")
FUNCTIONS(Endpoint, Endpoints, "endpoints")
FUNCTIONS(Namespace, Namespaces, "namespaces")
CREATION(Namespace, "namespaces")
FUNCTIONS(LoadBalancer, LoadBalancers, "loadbalancers")
CREATION(LoadBalancer, "loadbalancers")
FUNCTIONS(SdnRoute, SdnRoutes, "routes")
CREATION(SdnRoute, "routes")

EXPORTED HcnCreateEndpoint(void *network, const GUID *guid, const WCHAR *settings, void **handle,
                           WCHAR **error)
{
    const char *parent = strchr(network, ' ');

    return create("endpoints", parent ? parent + 1 : "", guid, settings, handle, error);
}

EXPORTED HNSCall(const WCHAR *method, const WCHAR *path, const WCHAR *request, WCHAR **response)
{
    char object[OBJECT_LENGTH], *verb = to_utf8(method), *place = to_utf8(path);
    answer received;

    snprintf(object, sizeof object, "%s %s", verb, place);
    free(verb);
    free(place);
    received = ask("call", object, request);
    return finish(&received, response, NULL);
}
