"""What operating systems do differently: locks, folders on the disk, processes, signals, malloc.

POSIX is the reference; every function says what it does elsewhere. Tests play the other systems by
taking `fcntl` and the like away."""

import contextlib
import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
# Locks of Windows are mandatory: a byte beyond any content is locked, so that the owner's id stays
# readable.
_LOCKED_BYTE = 1 << 30
_PROCESS_QUERY_LIMITED_INFORMATION, _STILL_ACTIVE, _ERROR_ACCESS_DENIED = 0x1000, 259, 5


def _optional(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


fcntl: Any = _optional("fcntl")
msvcrt: Any = _optional("msvcrt")

# Not handed on to programs that are started; Windows never does.
NOT_INHERITED: int = getattr(os, "O_CLOEXEC", 0)


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file, if nobody has it; it ends with the descriptor or the process.

    `flock`; on Windows a lock of one byte that is never written.
    """
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError:
        return False
    return True


def overwrite(descriptor: int, data: bytes) -> None:
    """Make `data` all that an open file holds."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, data)


def sync_folder(folder: os.PathLike[str]) -> None:
    """Make the names in a folder durable: renaming alone does not.

    Windows cannot open a folder, and its file system keeps a journal of names: nothing to do.
    """
    directory = getattr(os, "O_DIRECTORY", None)
    if directory is None:
        return
    descriptor = os.open(folder, os.O_RDONLY | directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def process_lives(process: int) -> bool:
    """Whether a process of this id exists, of whomever it is."""
    if process <= 0:
        return False
    if sys.platform == "win32":  # where `os.kill(process, 0)` would interrupt it
        return _lives_on_windows(process, ctypes.WinDLL("kernel32", use_last_error=True))
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _lives_on_windows(process: int, kernel: Any) -> bool:
    handle = kernel.OpenProcess(_PROCESS_QUERY_LIMITED_INFORMATION, False, process)
    if not handle:
        return bool(kernel.GetLastError() == _ERROR_ACCESS_DENIED)
    code = ctypes.c_ulong()
    kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return code.value == _STILL_ACTIVE


def in_forked_children(act: Callable[[], None]) -> None:
    """Call `act` at the start of every forked child; where there is no fork, never."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def interrupt(thread: int) -> None:
    """Press Ctrl-C in a thread of this process; without POSIX signals in the main one."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def usable_cores() -> int:
    """Cores that this process may run on; all of them where nobody can say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def others_may_read(mode: int) -> bool:
    """Whether the mode of a file lets other users at it. Windows has no such bits: folders of its
    users are private by their access lists.
    """
    return os.name == "posix" and bool(mode & 0o077)


def keep_large_blocks() -> bool:
    """Tell malloc never to map single blocks and never to give memory back; True where that is
    understood.

    glibc maps every large block afresh and unmaps it when it is freed; in array code on CPUs the
    page faults that follow cost more than the arithmetic. `scorebed` sets this before JAX starts,
    whatever the user's shell says; elsewhere than on glibc it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = None
    with contextlib.suppress(OSError):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(
        [mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_TOP_PAD, 2**28)]
    )
