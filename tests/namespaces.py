"""Two hosts on one machine: network namespaces with a cable between them, where root may make
them.
"""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ADDRESSES = ("10.77.0.1", "10.77.0.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def two_namespaces() -> Iterator[list[str]]:
    """Their names, for `ip netns exec`; each finds its own host name at its end of the cable. The
    test is skipped where they cannot be made.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")
    names = [f"scorebed-{os.getpid()}-{rank}" for rank in range(2)]
    ends = [f"sb{os.getpid() % 10**6}-{rank}" for rank in range(2)]
    files = [Path("/etc/netns") / name for name in names]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
        except subprocess.CalledProcessError:
            pytest.skip("network namespaces cannot be made here")
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, folder, address in zip(names, ends, files, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(
                f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n"
            )
        yield names
    finally:
        for name, folder in zip(names, files, strict=True):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(folder, ignore_errors=True)
