/* nslookup.exe: what a DNS server answers.

   Windows: has it in System32; it asks the first server of the adapters, or the one that is named,
   for the name with the adapter's suffix, then for the name itself.
   Wine 10.0: has no nslookup.exe.
   Probe: none; no Wine has it.

   Names only (A records), and without the interactive mode. Always ends with 0, as on Windows. Wine has
   one error for a server that fails and for one that does not answer: the time tells them apart. */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <iphlpapi.h>
#include <windns.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_MS = 900 }; /* the resolver waits for whole seconds */

static char server[64], suffix[256];

/* The first server and suffix of the adapters. */
static void read_settings(void)
{
    ULONG size = 1 << 16;
    IP_ADAPTER_ADDRESSES *adapters = malloc(size), *adapter;

    if (GetAdaptersAddresses(AF_INET, 0, NULL, adapters, &size))
        return;
    for (adapter = adapters; adapter; adapter = adapter->Next) {
        IP_ADAPTER_DNS_SERVER_ADDRESS *first = adapter->FirstDnsServerAddress;
        if (first && !*server && first->Address.lpSockaddr->sa_family == AF_INET)
            getnameinfo(first->Address.lpSockaddr, first->Address.iSockaddrLength, server,
                        sizeof server, NULL, 0, NI_NUMERICHOST);
        if (adapter->DnsSuffix && *adapter->DnsSuffix && !*suffix)
            snprintf(suffix, sizeof suffix, "%ls", adapter->DnsSuffix);
    }
}

static void print_server(const char *address, IP4_ARRAY *servers)
{
    struct in_addr number = {.s_addr = inet_addr(address)};
    const unsigned char *byte = (unsigned char *)&number;
    const char *name = "UnKnown";
    DNS_RECORDA *records = NULL;
    char reverse[64];

    snprintf(reverse, sizeof reverse, "%d.%d.%d.%d.in-addr.arpa", byte[3], byte[2], byte[1], byte[0]);
    if (!DnsQuery_A(reverse, DNS_TYPE_PTR, DNS_QUERY_BYPASS_CACHE, servers, (void *)&records, NULL) &&
        records && records->wType == DNS_TYPE_PTR)
        name = records->Data.PTR.pNameHost;
    printf("Server:  %s\nAddress:  %s\n\n", name, address);
}

/* Why the name has no addresses; NULL if it has some, which are then printed. */
static const char *look_up(const char *name, IP4_ARRAY *servers)
{
    DNS_RECORDA *records = NULL, *record;
    ULONGLONG begun = GetTickCount64();
    int count = 0, printed = 0;
    DNS_STATUS status = DnsQuery_A(name, DNS_TYPE_A, DNS_QUERY_BYPASS_CACHE | DNS_QUERY_NO_NETBT, servers,
                                   (void *)&records, NULL);

    if (status && status != DNS_ERROR_RCODE_NAME_ERROR && status != DNS_INFO_NO_RECORDS)
        return GetTickCount64() - begun >= SILENT_MS ? "Request timed out" : "Server failed";
    if (status)
        return "Non-existent domain";
    for (record = records; record; record = record->pNext)
        count += record->wType == DNS_TYPE_A;
    for (record = records; record; record = record->pNext) {
        struct in_addr number;
        if (record->wType != DNS_TYPE_A)
            continue;
        number.s_addr = record->Data.A.IpAddress;
        if (!printed++)
            printf("Name:    %s\nAddress%s:  %s\n", record->pName, count > 1 ? "es" : "",
                   inet_ntoa(number));
        else
            printf("\t  %s\n", inet_ntoa(number));
    }
    return count ? NULL : "Non-existent domain";
}

int main(int count, char **words)
{
    IP4_ARRAY servers = {.AddrCount = 1};
    const char *name = NULL, *why;
    char whole[512];
    WSADATA winsock;
    int at, named = 0;

    WSAStartup(MAKEWORD(2, 2), &winsock);
    read_settings();
    for (at = 1; at < count; at++) {
        if (*words[at] == '-')
            continue;
        if (named++)
            snprintf(server, sizeof server, "%s", words[at]);
        else
            name = words[at];
    }
    if (!name) {
        fprintf(stderr, "usage: nslookup NAME [SERVER]\n");
        return 1;
    }
    servers.AddrArray[0] = inet_addr(server);
    if (!*server || servers.AddrArray[0] == INADDR_NONE) {
        fprintf(stderr, "*** Can't find server address for '%s':\n", server);
        return 1;
    }
    print_server(server, &servers);
    snprintf(whole, sizeof whole, "%s.%s", name, suffix);
    if (*suffix && name[strlen(name) - 1] != '.' && !look_up(whole, &servers))
        return 0;
    if ((why = look_up(name, &servers)))
        fprintf(stderr, "*** %s can't find %s: %s\n", server, name, why);
    return 0;
}
