/* Replace functions of DLLs in the running process. Shared by the stand-ins that Go programs and
   PowerShell load through loader.c; the programs themselves stay as they are. */
#ifndef HYBRIDLAB_HOOKS_H
#define HYBRIDLAB_HOOKS_H
#include <winsock2.h>
#include <windows.h>

/* Make `module` call `replacement` for a function that it imports from `source`. kernel32's
   exports are jumps through its imports from kernelbase, so replacing one of those changes the
   function for everybody. Returns the function before, or NULL when it is not imported. */
void *replace_import(HMODULE module, const char *source, const char *function, void *replacement);

/* Make GetProcAddress and later imports of `module`'s `function` get `replacement`. Returns the
   function before, or NULL when it is not exported. */
void *replace_export(HMODULE module, const char *function, void *replacement);
#endif
