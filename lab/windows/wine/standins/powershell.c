/* powershell.exe: Windows PowerShell.

   Windows: has PowerShell 5.1 at System32\WindowsPowerShell\v1.0\powershell.exe.
   Wine 10.0: has an empty program there, which ends with 0.
   Probe: powershell.

   Starts PowerShell 7 of C:\Program Files\PowerShell\7 with the same words; options get their whole
   names, since not all short forms are the same. Words that are no option are a command for Windows
   PowerShell and a file for PowerShell 7: -Command is put before them. What PowerShell 7 does not know
   (-Version 5.1, -PSConsoleFile, -ImportSystemModules) is left out. .NET does not load the DLL by which
   stand-ins come (loader.c), so it is loaded into the new process first.

   A kubelet asks two questions of each folder on the way to a subPath (subpath_windows.go): of what kind
   a link is, and where it leads. A start of PowerShell on Wine takes seconds, so these two, word for word,
   are answered here: of files and folders that are no links, and of symbolic links. */
#include <windows.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <winioctl.h>

#define PROGRAM L"C:\\Program Files\\PowerShell\\7\\pwsh.exe"

/* Options of Windows PowerShell: each may be cut down to its shortest form. */
enum kind { FLAG, VALUE, REST, UNKNOWN_TO_7, VALUE_UNKNOWN_TO_7 };
static const struct {
    const WCHAR *name, *shortest, *other; /* other: a short form that is no beginning; NULL: none */
    enum kind kind;
} OPTIONS[] = {
    {L"Command", L"c", NULL, REST},
    {L"ConfigurationName", L"config", NULL, VALUE},
    {L"EncodedArguments", L"encodeda", L"ea", VALUE},
    {L"EncodedCommand", L"e", L"ec", VALUE},
    {L"ExecutionPolicy", L"ex", L"ep", VALUE},
    {L"File", L"f", NULL, REST},
    {L"Help", L"h", L"?", FLAG},
    {L"ImportSystemModules", L"imp", NULL, UNKNOWN_TO_7},
    {L"InputFormat", L"i", L"if", VALUE},
    {L"Mta", L"mta", NULL, FLAG},
    {L"NoExit", L"noe", NULL, FLAG},
    {L"NoLogo", L"nol", NULL, FLAG},
    {L"NonInteractive", L"noni", NULL, FLAG},
    {L"NoProfile", L"nop", NULL, FLAG},
    {L"OutputFormat", L"o", L"of", VALUE},
    {L"PSConsoleFile", L"psc", NULL, VALUE_UNKNOWN_TO_7},
    {L"ServerMode", L"s", NULL, FLAG},
    {L"Sta", L"sta", NULL, FLAG},
    {L"Version", L"v", NULL, VALUE_UNKNOWN_TO_7},
    {L"WindowStyle", L"w", NULL, VALUE},
};

static size_t skip_blanks(const WCHAR *words)
{
    return wcsspn(words, L" \t");
}

/* The length of the first word, with its quotes. */
static size_t word_length(const WCHAR *words)
{
    BOOL quoted = FALSE;
    size_t at;

    for (at = 0; words[at] && (quoted || (words[at] != L' ' && words[at] != L'\t')); at++)
        if (words[at] == L'"')
            quoted = !quoted;
    return at;
}

/* The number of the option that a word is; -1 for none. */
static int find_option(const WCHAR *word, size_t length)
{
    int number;

    if (length > 2 && *word == L'"' && word[length - 1] == L'"')
        word++, length -= 2;
    if (length < 2 || (*word != L'-' && *word != L'/'))
        return -1;
    word++, length--;
    for (number = 0; number < (int)ARRAYSIZE(OPTIONS); number++) {
        const WCHAR *name = OPTIONS[number].name, *other = OPTIONS[number].other;

        if (length >= wcslen(OPTIONS[number].shortest) && length <= wcslen(name) &&
            !_wcsnicmp(word, name, length))
            return number;
        if (other && length == wcslen(other) && !_wcsnicmp(word, other, length))
            return number;
    }
    return -1;
}

/* Windows PowerShell's words as PowerShell 7 takes them; FALSE if they are too long. */
static BOOL translate(const WCHAR *words, WCHAR *out, size_t size)
{
    for (words += skip_blanks(words); *words; words += skip_blanks(words)) {
        size_t length = word_length(words), value;
        int number = find_option(words, length), written;
        const WCHAR *name = number < 0 ? L"Command" : OPTIONS[number].name;
        enum kind kind = number < 0 ? REST : OPTIONS[number].kind;

        if (number >= 0) {
            words += length;
            words += skip_blanks(words);
        }
        if (kind == UNKNOWN_TO_7)
            continue;
        value = kind == REST ? wcslen(words) : kind == FLAG ? 0 : word_length(words);
        if (kind != VALUE_UNKNOWN_TO_7) {
            written = _snwprintf(out, size, L" -%ls%ls%.*ls", name, value ? L" " : L"",
                                 (int)value, words);
            if (written < 0 || (size_t)written >= size)
                return FALSE;
            out += written;
            size -= (size_t)written;
        }
        words += value;
    }
    return TRUE;
}

/* Have a new process load a DLL before it runs; without the DLL it runs as it is. */
static void load_into(HANDLE process, const char *library)
{
    SIZE_T size = strlen(library) + 1;
    void *name = VirtualAllocEx(process, NULL, size, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    HANDLE thread = NULL;

    if (name && WriteProcessMemory(process, name, library, size, NULL))
        thread = CreateRemoteThread(process, NULL, 0, (void *)LoadLibraryA, name, 0, NULL);
    if (thread) {
        WaitForSingleObject(thread, 10000);
        CloseHandle(thread);
    }
}

/* Write a name as UTF-8, of so many bytes of UTF-16, and a line's end. */
static void write_name(const WCHAR *name, WORD bytes)
{
    static char text[3 * 4096];
    int length = WideCharToMultiByte(CP_UTF8, 0, name, bytes / (int)sizeof(WCHAR), text, sizeof text,
                                     NULL, NULL);

    printf("%.*s\n", length, text);
}

#define LINK_QUESTION L"/c \"$ErrorActionPreference = 'Stop'; (Get-Item -Force -LiteralPath $env:linkpath)."

/* REPARSE_DATA_BUFFER of a symbolic link, which user-mode headers do not have (ntifs.h). */
typedef struct {
    DWORD tag;
    WORD length, reserved;
    WORD substitute_offset, substitute_length, print_offset, print_length;
    DWORD relative;
    WCHAR names[4096];
} link_buffer;

/* Answer a kubelet's question about the path in the variable linkpath; FALSE leaves it to PowerShell. */
static BOOL answer_about_link(const WCHAR *words)
{
    static link_buffer link;
    static WCHAR path[32768];
    BOOL(WINAPI *control)(HANDLE, DWORD, void *, DWORD, void *, DWORD, DWORD *, OVERLAPPED *);
    BOOL kind, answered = FALSE;
    BY_HANDLE_FILE_INFORMATION plain;
    DWORD size;
    HANDLE file;

    words += skip_blanks(words);
    if (wcsncmp(words, LINK_QUESTION, wcslen(LINK_QUESTION)))
        return FALSE;
    words += wcslen(LINK_QUESTION);
    kind = !wcscmp(words, L"LinkType\"");
    if (!kind && wcscmp(words, L"Target\""))
        return FALSE;
    size = GetEnvironmentVariableW(L"linkpath", path, ARRAYSIZE(path));
    if (!size || size >= ARRAYSIZE(path) || !LoadLibraryA("bcryptprimitives.dll"))
        return FALSE;
    file = CreateFileW(path, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                       OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return FALSE;
    /* the stand-in of links (symlinks.c) is found by name only */
    control = (void *)GetProcAddress(GetModuleHandleA("kernel32.dll"), "DeviceIoControl");
    if (control(file, FSCTL_GET_REPARSE_POINT, NULL, 0, &link, sizeof link, &size, NULL)) {
        if ((answered = link.tag == IO_REPARSE_TAG_SYMLINK)) {
            if (kind)
                printf("SymbolicLink\n");
            else
                write_name(link.names + link.print_offset / sizeof(WCHAR), link.print_length);
        }
    } else if (GetFileInformationByHandle(file, &plain)) {
        answered = (plain.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) || plain.nNumberOfLinks == 1;
    }
    CloseHandle(file);
    return answered;
}

int wmain(void)
{
    static WCHAR command[32768] = L"\"" PROGRAM L"\"";
    const WCHAR *words = GetCommandLineW();
    size_t begun = wcslen(command);
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    DWORD code = ERROR_PROCESS_ABORTED;

    if (answer_about_link(words + word_length(words)))
        return 0;
    if (!translate(words + word_length(words), command + begun, ARRAYSIZE(command) - begun)) {
        fprintf(stderr, "powershell: the command line is longer than 32766 characters\n");
        return ERROR_FILENAME_EXCED_RANGE;
    }
    SetEnvironmentVariableW(L"NO_COLOR", L"1"); /* Windows PowerShell writes no colours into a pipe */
    if (!CreateProcessW(PROGRAM, command, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start,
                        &process)) {
        code = GetLastError();
        if (code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND) {
            fprintf(stderr, "powershell: this image has no PowerShell; Windows nodes have one\n");
            return 1;
        }
        fprintf(stderr, "powershell: cannot start '%ls': error %lu\n", PROGRAM, code);
        return (int)code;
    }
    load_into(process.hProcess, "bcryptprimitives.dll");
    ResumeThread(process.hThread);
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
