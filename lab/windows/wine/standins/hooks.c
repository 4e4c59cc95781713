#include "hooks.h"

#include <string.h>

static IMAGE_DATA_DIRECTORY directory(BYTE *base, int which)
{
    IMAGE_NT_HEADERS64 *headers = (void *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);

    return headers->OptionalHeader.DataDirectory[which];
}

static void write_protected(void *place, const void *value, SIZE_T size)
{
    DWORD before;

    VirtualProtect(place, size, PAGE_READWRITE, &before);
    memcpy(place, value, size);
    VirtualProtect(place, size, before, &before);
}

void *replace_import(HMODULE module, const char *source, const char *function, void *replacement)
{
    BYTE *base = (BYTE *)module;
    IMAGE_IMPORT_DESCRIPTOR *imports =
        (void *)(base + directory(base, IMAGE_DIRECTORY_ENTRY_IMPORT).VirtualAddress);

    for (; imports->Name; imports++) {
        IMAGE_THUNK_DATA64 *name = (void *)(base + imports->OriginalFirstThunk);
        IMAGE_THUNK_DATA64 *thunk = (void *)(base + imports->FirstThunk);

        if (_stricmp((char *)base + imports->Name, source))
            continue;
        for (; name->u1.AddressOfData; name++, thunk++) {
            IMAGE_IMPORT_BY_NAME *entry = (void *)(base + name->u1.AddressOfData);
            void *before = (void *)thunk->u1.Function;

            if ((name->u1.Ordinal & IMAGE_ORDINAL_FLAG64) || strcmp(entry->Name, function))
                continue;
            write_protected(&thunk->u1.Function, &replacement, sizeof replacement);
            return before;
        }
    }
    return NULL;
}

/* An export is an offset of 32 bits from the DLL's base: a jump to `target` within its reach. */
static BYTE *nearby_jump(BYTE *base, void *target)
{
    const ULONG_PTR step = 0x10000, reach = 0x7fff0000;
    IMAGE_NT_HEADERS64 *headers = (void *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    ULONG_PTR at = ((ULONG_PTR)base + headers->OptionalHeader.SizeOfImage + step - 1) & ~(step - 1);
    BYTE *jump = NULL;

    for (; !jump && at < (ULONG_PTR)base + reach; at += step)
        jump = VirtualAlloc((void *)at, 4096, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE);
    if (!jump)
        return NULL;
    memcpy(jump, "\x48\xb8", 2); /* mov rax, target */
    memcpy(jump + 2, &target, 8);
    memcpy(jump + 10, "\xff\xe0", 2); /* jmp rax */
    return jump;
}

void *replace_export(HMODULE module, const char *function, void *replacement)
{
    BYTE *base = (BYTE *)module;
    IMAGE_EXPORT_DIRECTORY *exports =
        (void *)(base + directory(base, IMAGE_DIRECTORY_ENTRY_EXPORT).VirtualAddress);
    DWORD *functions = (void *)(base + exports->AddressOfFunctions);
    DWORD *names = (void *)(base + exports->AddressOfNames);
    WORD *ordinals = (void *)(base + exports->AddressOfNameOrdinals);
    DWORD number, offset;

    for (number = 0; number < exports->NumberOfNames; number++) {
        void *before = (void *)GetProcAddress(module, function);
        BYTE *jump;

        if (strcmp((char *)base + names[number], function))
            continue;
        jump = nearby_jump(base, replacement);
        if (!jump || !before)
            return NULL;
        offset = (DWORD)(jump - base);
        write_protected(&functions[ordinals[number]], &offset, sizeof offset);
        return before;
    }
    return NULL;
}
