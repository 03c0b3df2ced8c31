"""Two hosts work on one study through a Dask scheduler; a worker is killed, the scheduler is lost.

Hosts are network namespaces joined by a cable of their own where root may make them: nothing else
is on that network. Elsewhere they are two processes of this host, on loopback.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from studies import outcome, wait_for

from scorebed.sweeps.status import study_status
from scorebed.sweeps.worker import Worker

pytest.importorskip("distributed", reason="the extra scorebed[cluster]")
pytestmark = pytest.mark.slow

TRIALS = 6
LEASE = "3"
WORK = "from scorebed.cli import main; main()"
# A Dask worker ends with its scheduler: somebody has to start it again.
AGAIN = "while :; do {command}; sleep 1; done"


class Host:
    """A place where processes run, and its address."""

    def __init__(self, address, prefix=()):
        self.address, self.prefix, self.started = address, prefix, []

    def start(self, *command, out):
        """A process, and what it starts, in a group of its own."""
        with out.open("a") as file:
            process = subprocess.Popen(
                [*self.prefix, *command],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        for process in self.started:
            self.kill(process)


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, timeout=30, check=True)


@contextlib.contextmanager
def two_hosts():
    names = [f"sb{os.getpid()}{letter}" for letter in "ab"]
    addresses = ["10.213.77.1", "10.213.77.2"]
    with contextlib.ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name",
               names[1], "netns", names[1])  # fmt: skip
            for name, address in zip(names, addresses, strict=True):
                ip("-n", name, "address", "add", f"{address}/30", "dev", name)
                ip("-n", name, "link", "set", name, "up")
                ip("-n", name, "link", "set", "lo", "up")
            inside = ["ip", "netns", "exec"]
            hosts = [Host(a, (*inside, n)) for n, a in zip(names, addresses, strict=True)]
        except (OSError, subprocess.CalledProcessError):  # not root, or no such thing here
            hosts = [Host("127.0.0.1"), Host("127.0.0.1")]
        for host in hosts:
            stack.callback(host.close)
        yield hosts


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def owners(study):
    return {each.owner for each in study_status(study).running} - {"nobody"}


def test_two_hosts_survive_a_killed_worker_and_a_lost_scheduler(make, tmp_path):
    serial, shared = make("serial", trials=TRIALS), make("shared", trials=TRIALS)
    dask, log = [sys.executable, "-m", "dask"], tmp_path / "log"
    port = free_port()
    with two_hosts() as (here, there):
        address = f"tcp://{here.address}:{port}"
        scheduler = [*dask, "scheduler", "--host", here.address, "--port", str(port)]
        scheduler += ["--no-dashboard"]
        first = here.start(*scheduler, out=log)
        for host in (here, there):
            command = " ".join([
                *dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                "--host", host.address, "--local-directory", str(tmp_path / "dask"),
            ])  # fmt: skip
            host.start("sh", "-c", AGAIN.format(command=command), out=log)
        wait_for(lambda: log.read_text().count("Register worker") >= 2)
        driver = here.start(
            sys.executable, "-c", WORK, "sweep", "work", str(shared.folder), "--dask", address,
            "--lease", LEASE, out=log,
        )  # fmt: skip
        wait_for(lambda: len(owners(shared)) == 2)  # both are at work

        victim = next(iter(owners(shared)))
        os.kill(int(re.search(r"-(\d+)-\d+$", victim)[1]), signal.SIGKILL)
        wait_for(lambda: study_status(shared).finished >= 2)

        here.kill(first)
        wait_for(lambda: "waiting for the scheduler" in log.read_text())
        registered = log.read_text().count("Register worker")
        here.start(*scheduler, out=log)
        wait_for(lambda: "is back" in log.read_text())
        wait_for(lambda: log.read_text().count("Register worker") >= registered + 2)
        assert driver.wait(timeout=600) == 0, log.read_text()
    Worker(serial).work()
    assert outcome(shared) == outcome(serial)
    assert study_status(shared).errors == {}
    assert len(list(shared.trials_folder.iterdir())) == TRIALS
    shutil.rmtree(tmp_path / "dask", ignore_errors=True)
