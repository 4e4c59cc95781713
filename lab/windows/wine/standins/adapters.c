/* hybridlab-adapters.dll: the list of network adapters.

   Windows: GetAdaptersAddresses(AF_UNSPEC, GAA_FLAG_INCLUDE_PREFIX, ...) lists the adapters with
   their addresses and prefixes.
   Wine 10.0: answers ERROR_INVALID_DATA (13) to that flag when IPv6 is among the families. Go's
   net.Interfaces asks so: "getadaptersaddresses: Invalid data".
   Probe: adapters.

   The flag is left out. Go reads an address's OnLinkPrefixLength, which is there without it. */
#include "hooks.h"

#include <iphlpapi.h>

typedef ULONG WINAPI get_adapters(ULONG, ULONG, void *, IP_ADAPTER_ADDRESSES *, ULONG *);

static get_adapters *windows_get_adapters;

static ULONG WINAPI without_prefixes(ULONG family, ULONG flags, void *reserved,
                                     IP_ADAPTER_ADDRESSES *adapters, ULONG *size)
{
    return windows_get_adapters(family, flags & ~GAA_FLAG_INCLUDE_PREFIX, reserved, adapters, size);
}

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, void *reserved)
{
    (void)instance, (void)reserved;
    if (reason == DLL_PROCESS_ATTACH)
        windows_get_adapters = (get_adapters *)replace_export(
            LoadLibraryA("iphlpapi.dll"), "GetAdaptersAddresses", (void *)without_prefixes);
    return TRUE;
}
