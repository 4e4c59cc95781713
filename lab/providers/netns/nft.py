"""nftables scripts loaded in process, by libnftables: no program is started.

A libnftables context belongs to the network namespace in which it is made, and ctypes lets
go of the interpreter while the library works: several threads load several namespaces at once.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from functools import cache

from lab._errors import BrokenError, PreflightError
from lab.providers.netns import namespaces

LIBRARY = "libnftables.so.1"
INSTALL = "sudo apt-get install nftables   (or your distribution's package of libnftables 1)"
_THREADS = 2


@cache
def libnftables() -> ctypes.CDLL:
    """The library, with the signatures of the calls that are made.

    Raises
    ------
    PreflightError
        If it is not installed.

    """
    try:
        found = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise PreflightError(
            f"loading '{LIBRARY}'", f"it is not there ({error})", INSTALL
        ) from error
    found.nft_ctx_new.restype = ctypes.c_void_p
    found.nft_ctx_new.argtypes = (ctypes.c_uint32,)
    found.nft_ctx_free.argtypes = (ctypes.c_void_p,)
    found.nft_ctx_buffer_error.argtypes = (ctypes.c_void_p,)
    found.nft_ctx_get_error_buffer.argtypes = (ctypes.c_void_p,)
    found.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    found.nft_run_cmd_from_filename.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    return found


def load(text: str, namespace: str) -> None:
    """Run a script in the network namespace that the thread is in; all of it or nothing.

    Raises
    ------
    BrokenError
        With the library's own words: line, column and the line itself.
    PreflightError
        If libnftables is not installed.

    """
    nft = libnftables()
    # From a file, because only then do the library's messages say which line is meant.
    file = os.memfd_create("rules", os.MFD_CLOEXEC)
    context = nft.nft_ctx_new(0)
    try:
        os.write(file, text.encode())
        nft.nft_ctx_buffer_error(context)
        path = f"/proc/self/fd/{file}"
        if nft.nft_run_cmd_from_filename(context, path.encode()):
            said = nft.nft_ctx_get_error_buffer(context).decode().strip().replace(path, "line")
            raise BrokenError(f"loading the nftables rules in namespace '{namespace}'", said)
    finally:
        nft.nft_ctx_free(context)
        os.close(file)


def load_all(scripts: tuple[tuple[str, str], ...]) -> None:
    """Load ``(namespace, text)`` pairs, two at a time; the first error is raised at the end."""
    waiting = deque(scripts)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not errors:
                namespace, text = waiting.popleft()
                namespaces.enter(namespace)
                load(text, namespace)
        except IndexError:
            return
        except Exception as error:  # noqa: BLE001  carried over to the caller's thread
            errors.append(error)

    libnftables()
    threads = [threading.Thread(target=work) for _ in range(min(_THREADS, len(scripts)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
