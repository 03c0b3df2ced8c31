"""What all commands share: exit codes, one line per error, quiet interrupts, plain output, quick
help.
"""

import importlib
import json
import logging
import os
import pty
import resource
import shutil
import subprocess
import sys

import pytest

import scorebed
import scorebed.tasks
from scorebed.cli import main
from scorebed.cli._app import COMMANDS
from scorebed.cli._output import print_json, print_table
from scorebed.errors import ScorebedError

# Colours and a narrow screen are asked for here; no answer on a pipe may follow.
ENVIRONMENT = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "30", "TERM": "xterm-256color"}


def answer(capsys, *arguments):
    """Exit code, stdout and stderr of a command line in this process."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


def scorebed_process(*arguments, **options):
    """The same in a process of its own, through the installed entry point."""
    command = shutil.which("scorebed", path=os.path.dirname(sys.executable))
    return subprocess.run(
        [command, *arguments],
        check=False,
        text=True,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        **options,
    )


BAD = [
    (["taks"], "unknown command, got 'taks'", "did you mean 'tasks'?"),
    (["nle2", "location"], "unknown command, got 'nle2'", "did you mean 'nle'?"),
    (["qqqq"], "unknown command, got 'qqqq'", f"choose one of {', '.join(sorted(COMMANDS))}."),
    (["--versoin"], "got '--versoin'", "did you mean '--version'?"),
    (["--json", "tasks"], "got '--json'", "write options after the command."),
    (["nle", "locaton"], "unknown TABLE, got 'locaton'", "did you mean 'location'?"),
    (["nle", "io-smc"], "unknown TABLE, got 'io-smc'", "did you mean 'iosmc'?"),
    (["nle", ""], "unknown TABLE, got ''", "choose one of"),
    (
        ["nle"],
        "TABLE of 'scorebed nle', got nothing, expected one of location, dynamical",
        "'scorebed nle --help'",
    ),
    (["nle", "--json"], "TABLE of 'scorebed nle', got nothing", "'scorebed nle --help'"),
    (
        ["nle", "mlmc", "--jsn"],
        "unknown option of 'scorebed nle', got '--jsn'",
        "did you mean '--json'?",
    ),
    (
        ["nle", "mlmc", "--jsn=1"],
        "unknown option of 'scorebed nle', got '--jsn'",
        "did you mean '--json'?",
    ),
    (
        ["nle", "mlmc", "--json=maybe"],
        "--json, got 'maybe', expected true or false",
        "'scorebed nle --help'",
    ),
    (
        ["nle", "mlmc", "--json", "--json"],
        "--json of 'scorebed nle', got it twice",
        "'scorebed nle --help'",
    ),
    (["nle", "mlmc", "iosmc"], "got 'iosmc', expected no more of them", "leave it out"),
    (["tasks", "pendulum"], "got 'pendulum', expected no more of them", "leave it out"),
    (
        ["tasks", "-x"],
        "unknown option of 'scorebed tasks', got '-x'",
        "choose one of --help, --json, --version.",
    ),
    (
        ["train", "pendulum", "--set", "task=gravimetry"],
        "--set task=gravimetry, got pendulum as the command's own task",
        "leave --set task out.",
    ),
    (
        ["train", "pendulum", "--method", "pce", "--set", "method=score"],
        "--set method=score, got pce as the command's own method",
        "leave --set method out.",
    ),
    (["check", "pendulum", "--out", "."], "--out, got ., a folder", "name a file"),
    (["check", "pendulum", "--out", ".."], "--out, got .., a folder", "name a file"),
    (["nle", "two\nlines \x1b[31m\udcff"], r"got 'two lines \x1b[31m\udcff'", "choose one of"),
]


@pytest.mark.parametrize(("arguments", "what", "fix"), BAD, ids=lambda value: repr(value)[:40])
def test_bad_input_gets_exit_code_2_and_one_line_with_the_way_out(capsys, arguments, what, fix):
    code, out, err = answer(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    before, after = err.split(". Fix: ")
    assert what in before
    assert fix in after
    assert "Traceback" not in err


def test_any_error_of_ours_becomes_that_line(capsys, monkeypatch):
    def fail(name):
        raise ScorebedError(f"the task {name}, got\na fault, expected none. Fix: mend it.")

    monkeypatch.setattr(scorebed.tasks, "make_task", fail)
    line = "error: the task location-finding, got a fault, expected none. Fix: mend it.\n"
    assert answer(capsys, "tasks", "--json") == (2, "", line)


def test_a_file_that_cannot_be_opened_is_bad_input(capsys, monkeypatch):
    monkeypatch.setattr(scorebed.tasks, "make_task", lambda _: os.listdir("/nowhere/at all"))
    code, out, err = answer(capsys, "tasks")
    assert (code, out) == (2, "")
    assert err.startswith("error: /nowhere/at all, got No such file or directory, expected ")


def test_a_fault_of_the_program_is_not_hidden(monkeypatch):
    monkeypatch.setattr(scorebed.tasks, "make_task", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["tasks"])


def test_an_interrupt_exits_130_and_says_nothing(capsys, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(scorebed.tasks, "make_task", interrupt)
    assert answer(capsys, "tasks") == (130, "", "")


def test_logs_go_to_stderr_and_results_alone_to_stdout(capsys, monkeypatch):
    make_task = scorebed.tasks.make_task

    def log_and_make(name):
        logging.getLogger("scorebed.tasks").info("making %s", name)
        return make_task(name)

    monkeypatch.setattr(scorebed.tasks, "make_task", log_and_make)
    code, out, err = answer(capsys, "tasks", "--json")
    assert code == 0
    assert [task["name"] for task in json.loads(out)["tasks"]] == list(scorebed.tasks.TASKS)
    assert err.splitlines() == [f"making {name}" for name in scorebed.tasks.TASKS]


def test_numbers_that_are_not_finite_become_null(capsys):
    print_json(
        {
            "a": [float("nan"), (float("inf"), -1.5)],
            "b": {"c": float("-inf")},
            "d": 10**20,
            "e": True,
        }
    )
    assert json.loads(capsys.readouterr().out) == {
        "a": [None, [None, -1.5]],
        "b": {"c": None},
        "d": 10**20,
        "e": True,
    }


def test_tables_are_neither_wrapped_nor_cut_nor_read_as_markup(capsys):
    long = "x" * 300 + " " + "y" * 300
    print_table(
        {"name": "left", "n": "right", "what": "text"},
        [["a [red]", "1", long], ["b", "1,000", ":smile:"]],
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name         n  what", f"a [red]      1  {long}", "b        1,000  :smile:"]


def test_version(capsys):
    assert answer(capsys, "--version") == (0, f"{scorebed.__version__}\n", "")


def test_help_lists_every_command_with_its_summary(capsys):
    code, out, err = answer(capsys, "--help")
    assert (code, err) == (0, "")
    for name, summary in COMMANDS.items():
        assert f"  {name}: {summary}\n" in out
    assert answer(capsys) == (code, out, err)


# A command of several actions, each with options of its own.
ACTIONS = {"sweep": ("create", "work", "status", "best", "report")}
WORDS = [(name, *action) for name in COMMANDS for action in ([a] for a in ACTIONS.get(name, ()))]
WORDS += [(name,) for name in COMMANDS if name not in ACTIONS]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_takes_json_and_has_a_description_of_its_own(capsys, words):
    code, out, err = answer(capsys, *words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: scorebed {' '.join(words)} ")
    function = getattr(importlib.import_module(f"scorebed.cli.{words[0]}"), words[-1])
    sentence = " ".join(function.__doc__.split("\n\n")[0].split())
    assert out.split("\n\n")[1].splitlines()[0] in sentence
    assert "--json: Print the result alone" in out


@pytest.mark.parametrize("name", ACTIONS)
def test_a_command_of_several_actions_lists_them(capsys, name):
    code, out, err = answer(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert all(f"  {action}: " in out for action in ACTIONS[name])
    code, _, err = answer(capsys, name, "creat")
    assert code == 2
    assert "did you mean 'create'?" in err


def test_help_and_budgets_need_no_jax():
    code = """
import sys
from scorebed.cli import main
for line in ("--help", "nle --help", "tasks --help", "nle location", "nle x", "x"):
    try:
        main(line.split())
    except SystemExit:
        heavy = {"jax", "numpy", "equinox", "scorebed.tasks"} & set(sys.modules)
        assert not heavy, (line, heavy)
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL
        ).returncode
        == 0
    )


def test_help_answers_in_half_a_second():
    # Processor time, so that a busy machine doesn't fail us, and the best of three.
    assert min(_processor_seconds("nle", "--help") for _ in range(3)) < 0.5


def _processor_seconds(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert scorebed_process(*arguments, stdout=subprocess.PIPE).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", [["nle", "dynamical"], ["nle", "--help"]], ids=" ".join)
def test_a_pipe_gets_plain_unwrapped_text_whatever_the_environment_says(capsys, arguments):
    run = scorebed_process(*arguments, stdout=subprocess.PIPE)
    assert (run.returncode, run.stderr) == (0, "")
    assert "\x1b" not in run.stdout
    assert (0, run.stdout, "") == answer(capsys, *arguments)
    assert max(map(len, run.stdout.splitlines())) > 100


def test_a_narrow_terminal_wraps_text_but_cuts_no_name_and_no_number():
    reader, writer = pty.openpty()
    run = scorebed_process("nle", "dynamical", stdout=writer)
    os.close(writer)
    seen = os.read(reader, 65536).decode()
    os.close(reader)
    assert (run.returncode, run.stderr) == (0, "")
    assert "\x1b[1m" in seen
    assert "…" not in seen
    assert seen.count("10,240,000,000") == 7


def test_the_process_exits_with_the_code_and_the_line():
    run = scorebed_process("nle", "locaton", stdout=subprocess.PIPE)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: unknown TABLE, got 'locaton'")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_leaves_is_no_error(options):
    reader, writer = os.pipe()
    os.close(reader)
    run = scorebed_process("nle", "location", *options, stdout=writer)
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        run = scorebed_process("nle", "location", "--json", stdout=full)
    assert run.returncode == 2
    assert run.stderr.startswith("error: the output, got No space left on device")
    assert len(run.stderr.splitlines()) == 1


def test_a_terminal_without_our_letters_gets_question_marks():
    run = subprocess.run(
        [sys.executable, "-c", "from scorebed.cli import main; main(['nle', 'iosmc'])"],
        check=False,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.startswith(b"IO-SMC? on the dynamical systems")
