"""Files that a crash or a power cut leaves either as they were or as they should be.

Write aside, fsync, rename, fsync the folder.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from scorebed._platform import sync_folder
from scorebed.errors import DiskFullError, RunFolderError

# EFBIG: a limit on the size of a file (ulimit -f), which is a full disk to the one who writes.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

TEMPORARY = ".tmp-"


@contextlib.contextmanager
def explained(what: str, path: Path, *, needed: int = 0) -> Iterator[None]:
    """Turn a failure of the file system into one sentence; `needed` is the number of bytes that
    were to be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or repr(error)
        if error.errno in _FULL:
            raise DiskFullError(
                f"{what} {path}",
                got=f"'{reason}' with {_free(path)} bytes free",
                expected=f"room for {needed} bytes",
                fix="free some space or raise the limit; what was saved before is untouched.",
            ) from error
        raise RunFolderError(
            f"{what} {path}",
            got=f"'{reason}'",
            expected="a path that can be read and written",
            fix="check the path and its permissions.",
        ) from error


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, down to the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` into `path` at once: a reader, and a crash, see the old file or the new one."""
    temporary = temporary_beside(path)
    with explained("writing", path, needed=len(data)):
        try:
            write_new(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same folder, recognised by `remove_leftovers`."""
    return path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each durably; one that is there already is fine."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete what writers that were killed left half done. Only for the owner of the folder."""
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _free(path: Path) -> int:
    """Bytes that are free where `path` lies or would lie."""
    place = next(p for p in (path, *path.absolute().parents) if p.exists())
    return shutil.disk_usage(place).free
