"""Ctrl-C wherever it lands: exit code 130, not a word, and the handlers of others left alone."""

import signal
import subprocess
import sys
import threading

import pytest

from scorebed.cli._interrupt import quiet_interrupts

# Each case sends itself the signal in a place that is hard to interrupt, and would say so if it
# survived.
IMPORTING = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    raise ImportError("initialisation was disturbed")
"""
CASES = {
    "running": "os.kill(os.getpid(), signal.SIGINT)",
    "importing": "import disturbed",
    "destroying": """
class Disturbed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
thing = Disturbed()
del thing
time.sleep(20)""",
    "collecting": """
def interrupt(phase, info):
    if phase == "stop":
        gc.callbacks.clear()
        os.kill(os.getpid(), signal.SIGINT)

gc.callbacks.append(interrupt)
gc.collect()
time.sleep(20)""",
}
PROGRAM = """
import gc, os, signal, sys, time
import scorebed.cli._app, scorebed.cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits an ignored one
def run(arguments):
    exec(arguments[0], globals())
    print("survived")
    return 0
scorebed.cli._app.run = run
scorebed.cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_is_quiet_wherever_it_lands(case, tmp_path):
    (tmp_path / "disturbed.py").write_text(IMPORTING)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, CASES[case]],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, b"", b"")


def test_handlers_are_put_back_and_those_of_others_are_left_alone():
    default, hook = signal.default_int_handler, sys.unraisablehook
    before = signal.signal(signal.SIGINT, default)
    try:
        with quiet_interrupts():
            assert signal.getsignal(signal.SIGINT) is not default
        assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (default, hook)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with quiet_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_may_run_commands():
    faults = []

    def work():
        try:
            with quiet_interrupts():
                pass
        except ValueError as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert faults == []
