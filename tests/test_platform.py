"""Other operating systems, played on this one by taking away what they do not have."""

import ctypes
import os
import signal
import sys
import threading
import types

import pytest

from scorebed import _platform
from scorebed.errors import FolderInUseError
from scorebed.runs.durable import replace_file
from scorebed.runs.lock import Lock


class WindowsLocks(types.ModuleType):
    """`msvcrt.locking`: one owner per byte, dropped when the descriptor is closed."""

    LK_NBLCK = 2

    def __init__(self):
        super().__init__("msvcrt")
        self.owners: dict[tuple[int, int], int] = {}
        self.offsets: list[int] = []

    def locking(self, descriptor: int, mode: int, length: int) -> None:
        assert (mode, length) == (self.LK_NBLCK, 1)
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        key = (os.fstat(descriptor).st_ino, offset)
        if self.owners.get(key, descriptor) != descriptor and self._open(self.owners[key]):
            raise PermissionError(13, "Permission denied")
        self.owners[key] = descriptor
        self.offsets.append(offset)

    def _open(self, descriptor: int) -> bool:
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True


@pytest.fixture
def windows_locks(monkeypatch) -> WindowsLocks:
    locks = WindowsLocks()
    monkeypatch.setattr(_platform, "fcntl", None)
    monkeypatch.setattr(_platform, "msvcrt", locks)
    return locks


def refused_second_owner(folder) -> None:
    """The law of the lock: one owner, named to the second; free when it is released."""
    first, second = Lock(folder / "lock"), Lock(folder / "lock")
    first.acquire()
    with pytest.raises(FolderInUseError, match=f"process {os.getpid()} is writing"):
        second.acquire()
    assert not second.held
    assert (folder / "lock").read_text() == f"{os.getpid()}\n"
    first.release()
    second.acquire()
    assert second.held
    second.release()


def test_one_owner_of_a_folder(tmp_path):
    refused_second_owner(tmp_path)


def test_one_owner_of_a_folder_by_windows_locks(tmp_path, windows_locks):
    refused_second_owner(tmp_path)
    assert min(windows_locks.offsets) > 1_000_000  # away from the owner's id, which others read


def test_nothing_locks_twice_without_either_module(tmp_path, monkeypatch):
    monkeypatch.setattr(_platform, "fcntl", None)
    monkeypatch.setattr(_platform, "msvcrt", None)
    with pytest.raises(AttributeError):  # never silently without a lock
        Lock(tmp_path / "lock").acquire()


def test_a_file_is_replaced_where_folders_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_DIRECTORY")
    replace_file(tmp_path / "file", b"first")
    replace_file(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"second"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_are_synced_where_they_can_be(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    _platform.sync_folder(tmp_path)
    assert synced == [tmp_path.stat().st_ino]


def test_processes_that_live_and_do_not():
    assert _platform.process_lives(os.getpid())
    assert _platform.process_lives(1)  # somebody else's, perhaps
    assert not any(_platform.process_lives(process) for process in (0, -1, 2**22 + 1))


class WindowsKernel:
    """`kernel32` with one process that runs, one that has ended, and one of somebody else."""

    def __init__(self):
        self.closed = []

    def OpenProcess(self, access, inherit, process):  # noqa: N802
        assert access == 0x1000
        assert not inherit
        return process if process in (10, 11) else 0

    def GetLastError(self):  # noqa: N802
        return self.error

    def GetExitCodeProcess(self, handle, code):  # noqa: N802
        ctypes.cast(code, ctypes.POINTER(ctypes.c_ulong))[0] = {10: 259, 11: 1}[handle]

    def CloseHandle(self, handle):  # noqa: N802
        self.closed.append(handle)


@pytest.mark.parametrize(
    ("process", "error", "lives"), [(10, 0, True), (11, 0, False), (12, 5, True), (13, 87, False)]
)
def test_processes_of_windows_are_asked_not_killed(monkeypatch, process, error, lives):
    kernel = WindowsKernel()
    kernel.error = error
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: kernel, raising=False)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("this interrupts it on Windows"))
    assert _platform.process_lives(process) is lives
    assert kernel.closed == ([process] if process < 12 else [])


def test_without_fork_nothing_is_registered(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")
    _platform.in_forked_children(lambda: pytest.fail("there are no children"))


def interrupted_wait() -> None:
    _platform.interrupt(threading.main_thread().ident)
    threading.Event().wait(10)


@pytest.mark.parametrize("posix", [True, False])
def test_an_interrupt_arrives(monkeypatch, posix):
    if not posix:
        monkeypatch.delattr(signal, "pthread_kill")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_wait()
    finally:
        signal.signal(signal.SIGINT, before)


def test_cores_where_nobody_says_which_are_usable(monkeypatch):
    assert 1 <= _platform.usable_cores() <= os.cpu_count()
    monkeypatch.delattr(os, "sched_getaffinity")
    assert _platform.usable_cores() == os.cpu_count()


def test_modes_of_files_count_where_there_are_users(monkeypatch):
    assert _platform.others_may_read(0o100644)
    assert not _platform.others_may_read(0o100600)
    monkeypatch.setattr(os, "name", "nt")
    assert not _platform.others_may_read(0o100666)  # what Windows says of every file


def test_malloc_is_told_on_glibc_alone(monkeypatch):
    told = []

    class Library:
        def mallopt(self, option, value):
            told.append((option, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_: Library())
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not _platform.keep_large_blocks()
    assert told == []
    monkeypatch.setattr(sys, "platform", "linux")
    assert _platform.keep_large_blocks()
    assert len(told) == 3
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: object())  # musl
    assert not _platform.keep_large_blocks()


def test_nothing_else_asks_for_what_is_not_everywhere():
    """Names that only some systems have stand in `_platform` alone."""
    source = os.path.dirname(_platform.__file__)
    apart = (
        *("import fcntl", "O_DIRECTORY", "O_CLOEXEC", "sched_getaffinity", "register_at_fork"),
        *("pthread_kill", "mallopt", "os.kill", "os.fork", "pwrite", "import termios"),
        *("import resource\n", "SIGKILL", "os.geteuid", "ctypes.CDLL"),
    )
    for folder, _, files in os.walk(source):
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".py") and path != _platform.__file__:
                with open(path) as file:
                    text = file.read()
                assert not [word for word in apart if word in text], path
