/* hybridlab-processes.exe: the processes with their command lines.

   Windows: the CIM class Win32_Process has them.
   Wine 10.0: PowerShell has no CIM there, and wmic.exe knows the command line of no process but its
   own.
   Probe: none; the PowerShell module CimCmdlets of Wine nodes (modules/) asks this program.

   A line for each process: number, name and command line, separated by tabs. */
#include <windows.h>

#include <stdio.h>
#include <tlhelp32.h>
#include <winternl.h>

typedef NTSTATUS NTAPI query_information(HANDLE, PROCESSINFOCLASS, void *, ULONG, ULONG *);

/* The command line of a process, from its own memory; empty if it cannot be read. */
static void read_command_line(query_information *query, DWORD number, WCHAR *line, SIZE_T room)
{
    HANDLE process = OpenProcess(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, FALSE, number);
    RTL_USER_PROCESS_PARAMETERS parameters = {0};
    PROCESS_BASIC_INFORMATION information = {0};
    PEB block = {0};
    SIZE_T size;

    line[0] = 0;
    if (process && !query(process, ProcessBasicInformation, &information, sizeof information, NULL) &&
        ReadProcessMemory(process, information.PebBaseAddress, &block, sizeof block, NULL) &&
        ReadProcessMemory(process, block.ProcessParameters, &parameters, sizeof parameters, NULL)) {
        size = parameters.CommandLine.Length;
        if (size > (room - 1) * sizeof *line)
            size = (room - 1) * sizeof *line;
        if (ReadProcessMemory(process, parameters.CommandLine.Buffer, line, size, NULL))
            line[size / sizeof *line] = 0;
    }
    if (process)
        CloseHandle(process);
}

int wmain(void)
{
    static WCHAR line[32768];
    PROCESSENTRY32W entry = {.dwSize = sizeof entry};
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    query_information *query =
        (void *)GetProcAddress(GetModuleHandleA("ntdll.dll"), "NtQueryInformationProcess");
    BOOL more;

    for (more = Process32FirstW(list, &entry); more; more = Process32NextW(list, &entry)) {
        read_command_line(query, entry.th32ProcessID, line, ARRAYSIZE(line));
        wprintf(L"%lu\t%ls\t%ls\n", entry.th32ProcessID, entry.szExeFile, line);
    }
    return 0;
}
