/* pdh.dll: performance counters.

   Windows: answers the counters that a kubelet asks for: processor time, memory committed, private
   working set, bytes and packets of network adapters.
   Wine 10.0: has no such counters: "unable to add process counter ... c0000bb9"; a kubelet ends.
   Probe: counters.

   Processor and memory are the machine's own, as Wine's kernel32 says them. Any other counter reads
   zero. One item "_Total" is all that a counter with instances has. */
#include <windows.h>

#include <stdlib.h>
#include <wchar.h>

#define EXPORTED __declspec(dllexport) DWORD WINAPI

enum { INVALID_ARGUMENT = 0xC0000BBD, MORE_DATA = 0x800007D2 };
enum kind { OTHER, PROCESSOR, MEMORY };

typedef struct {
    DWORD status;
    union {
        LONG number;
        double real;
        LONGLONG large;
    } value;
} counter_value;

typedef struct {
    WCHAR *name;
    counter_value value;
} counter_item;

typedef struct {
    enum kind kind;
    ULONGLONG idle, total; /* at the last reading, 100 ns */
} counter;

static ULONGLONG hundred_ns(FILETIME time)
{
    return (ULONGLONG)time.dwHighDateTime << 32 | time.dwLowDateTime;
}

/* Percent of the time since the last reading that processors were not idle. */
static double processor_time(counter *counter)
{
    FILETIME idle_time, kernel_time, user_time;
    ULONGLONG idle, total, idle_before = counter->idle, total_before = counter->total;

    if (!GetSystemTimes(&idle_time, &kernel_time, &user_time))
        return 0;
    idle = hundred_ns(idle_time);
    total = hundred_ns(kernel_time) + hundred_ns(user_time); /* the kernel's has the idle time */
    counter->idle = idle;
    counter->total = total;
    if (total <= total_before)
        return 0;
    return 100.0 * (1.0 - (double)(idle - idle_before) / (double)(total - total_before));
}

static double used_memory(void)
{
    MEMORYSTATUSEX status = {.dwLength = sizeof status};

    return GlobalMemoryStatusEx(&status) ? (double)(status.ullTotalPhys - status.ullAvailPhys) : 0;
}

static counter_value read_counter(counter *counter, DWORD format)
{
    counter_value read = {0};
    double value = counter->kind == PROCESSOR ? processor_time(counter)
                   : counter->kind == MEMORY  ? used_memory()
                                              : 0;

    if (format & 0x100) /* PDH_FMT_LONG */
        read.value.number = (LONG)value;
    else if (format & 0x400) /* PDH_FMT_LARGE */
        read.value.large = (LONGLONG)value;
    else
        read.value.real = value;
    return read;
}

EXPORTED PdhOpenQueryW(const WCHAR *source, DWORD_PTR user, HANDLE *query)
{
    (void)source, (void)user;
    *query = malloc(1);
    return *query ? 0 : ERROR_NOT_ENOUGH_MEMORY;
}

EXPORTED PdhOpenQuery(const WCHAR *source, DWORD_PTR user, HANDLE *query)
{
    return PdhOpenQueryW(source, user, query);
}

EXPORTED PdhAddEnglishCounterW(HANDLE query, const WCHAR *path, DWORD_PTR user, HANDLE *handle)
{
    counter *made = calloc(1, sizeof *made);

    (void)query, (void)user;
    if (!made)
        return ERROR_NOT_ENOUGH_MEMORY;
    made->kind = wcsstr(path, L"% Processor Time")                                     ? PROCESSOR
                 : wcsstr(path, L"Working Set") || wcsstr(path, L"Committed Bytes") ? MEMORY
                                                                                       : OTHER;
    processor_time(made);
    *handle = made;
    return 0;
}

EXPORTED PdhAddCounterW(HANDLE query, const WCHAR *path, DWORD_PTR user, HANDLE *handle)
{
    return PdhAddEnglishCounterW(query, path, user, handle);
}

EXPORTED PdhValidatePathW(const WCHAR *path)
{
    (void)path;
    return 0;
}

EXPORTED PdhCollectQueryData(HANDLE query)
{
    (void)query;
    return 0;
}

EXPORTED PdhCloseQuery(HANDLE query)
{
    free(query);
    return 0;
}

EXPORTED PdhGetFormattedCounterValue(HANDLE handle, DWORD format, DWORD *type, counter_value *value)
{
    if (type)
        *type = 0;
    *value = read_counter(handle, format);
    return 0;
}

EXPORTED PdhGetFormattedCounterArrayW(HANDLE handle, DWORD format, DWORD *size, DWORD *count,
                                      counter_item *items)
{
    static WCHAR total[] = L"_Total";

    if (!size || !count)
        return INVALID_ARGUMENT;
    *count = 1;
    if (*size < sizeof *items) {
        *size = sizeof *items;
        return MORE_DATA;
    }
    items->name = total;
    items->value = read_counter(handle, format);
    return 0;
}
