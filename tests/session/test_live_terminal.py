"""`scorebed live`: an experiment by typed lines, through a pipe and on a terminal, gives what
Python gives.
"""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from scorebed.cli._app import run as command
from scorebed.cli._dialogue import WIDTH, draw
from scorebed.errors import ScorebedError
from scorebed.runs.load import load
from scorebed.session.events import Remaining
from scorebed.session.posterior import MarginalSummary
from scorebed.session.refine import RefineResult
from scorebed.session.session import Session
from scorebed.tasks.spaces import Quantity


@pytest.fixture
def live(folder, tmp_path, monkeypatch, capsys):
    """live(lines, options…) → (exit code, stdout, stderr) of one sitting, by default on one
    experiment.
    """

    def sit(lines, *options):
        typed = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(typed, encoding="utf-8"))
        usual = () if "--experiment" in options else ("--experiment", "bench", "--seed", "3")
        code = command(
            ["live", str(folder), "--db", str(tmp_path / "live.sqlite"), *usual, *options]
        )
        return code, *capsys.readouterr()

    return sit


@pytest.fixture
def stored(folder, tmp_path):
    """The experiment of `live`, opened in Python."""
    with Session.open(
        load(folder), db=tmp_path / "live.sqlite", experiment="bench", seed=3
    ) as session:
        yield session


def test_the_terminal_and_python_propose_the_same_designs_for_the_same_data(
    live, stored, folder, tmp_path
):
    lines = ["0.5", "u", "0.7", "-1 @ 1.25", "c 1 0.4", "n sensor cleaned", "h", "1.1", "f"]
    code, out, err = live(lines)
    assert (code, err) == (0, "")
    with Session.create(load(folder), db=tmp_path / "python.sqlite", seed=3) as python:
        python.propose()
        python.observe(0.5)
        python.propose()
        python.undo()
        python.propose()
        python.observe(0.7)
        python.propose()
        python.observe(-1.0, 1.25)
        python.propose()
        python.correct(1, 0.4)
        python.propose()
        python.note("sensor cleaned")
        python.observe(1.1)
        python.finish()
        both = [
            [(e.kind, e.step, e.data) for e in session.history()] for session in (stored, python)
        ]
        assert both[0] == both[1]
        assert stored.state.records[-1].proposal.design == python.state.records[-1].proposal.design
        assert f"    covariate  {python.state.records[-1].proposal.design[0]:.6g}\n" in out
    assert (
        out.index("step 1 of 3")
        < out.index("stored: step 1, response 0.5")
        < out.index("undone: step 1")
    )
    assert "stored: step 2, response -1 at covariate 1.25" in out
    assert "corrected: step 1, response 0.4" in out
    assert " expected by the end (effective" in out
    assert "coefficient" in out
    assert "sensor cleaned" in stored.state.notes[0].text
    assert out.rstrip().endswith("The experiment is finished.")


def test_a_sitting_that_ends_is_resumed_where_it_was(live, stored, folder, tmp_path):
    _, first, _ = live(["0.5", "q"])
    again = first.rstrip().rpartition("go on with: ")[2]
    assert again == f"scorebed live {folder} --db {tmp_path / 'live.sqlite'} --experiment bench"
    code, second, _ = live([])  # the input ends at once
    assert code == 0
    assert "1 taken before" in second
    design = stored.propose().design[0]
    assert first.count(f"covariate  {design:.6g}") == second.count(f"covariate  {design:.6g}") == 1
    live(["-1", "1", "s"])
    assert [record.y for record in stored.state.records] == [(0.5,), (-1.0,), (1.0,)]


BAD = [
    "",
    "1e999",
    "1,5",
    "nan",
    "1 2",
    "x",
    "-",
    "1 @ 9",
    "c",
    "c 1 2",
    "c x 1",
    "n",
    "u",
    "U",
    "0.5 @",
    "l",
    "l 0",
    "l 0:9",
    "l 1:0",
    "l 0:1,5",
    "t",
    "t x",
    "t 0",
    "t 2.5",
    "t 99999",
    "r x",
    "r 0",
    "r -1",
    "r 1e9",
    "w x",
    "w 1 @ 9",
]


def test_every_bad_line_is_answered_by_one_line_and_stores_nothing(live, stored):
    code, out, err = live([*BAD, "?", "q"])
    assert (code, err) == (0, "")
    answers = [line for line in out.splitlines() if line.startswith("not stored: ")]
    assert len(answers) == len(BAD)
    assert all(", got " in line and ". Fix: " in line for line in answers)
    assert "Traceback" not in out
    assert "skip this step" in out
    assert [event.kind for event in stored.history()] == ["proposed"]


def test_an_improbable_outcome_is_asked_back_and_never_discarded(live, stored):
    _, out, _ = live(["1e4", "no", "1e4", "y", "q"])
    assert out.count("is improbable") == 2
    assert [record.y for record in stored.state.records] == [(1e4,)]
    assert [event.kind for event in stored.history()] == ["proposed", "observed", "proposed"]


def test_skipping_and_running_out_of_steps(live, stored):
    _, out, _ = live(["s", "0.5", "s", "1.5", "u", "0.25", "f"])
    assert "All steps are taken" in out
    assert "no step is left" in out
    assert [record.y for record in stored.state.records] == [None, (0.5,), (0.25,)]
    assert stored.state.finished


def test_a_design_that_cannot_be_had_is_told_and_the_sitting_goes_on(live, stored, monkeypatch):
    chosen = Session._chosen

    def none_at_two(self, known):
        if known.step == 2:
            raise ScorebedError("the design of step 2, got none, expected one. Fix: undo.")
        return chosen(self, known)

    monkeypatch.setattr(Session, "_chosen", none_at_two)
    code, out, err = live(["0.5", "0.7", "u", "q"])
    assert (code, err) == (0, "")
    assert out.count("the design of step 2, got none") == 2  # before each of the two lines
    assert "not stored: an entry, got '0.7', expected a command, while there is no design" in out
    assert "undone: step 1" in out
    assert stored.state.records == ()


def test_what_if_limits_and_lengths_are_lines_too(live, stored):
    _, out, _ = live(
        [
            "w 0.3",
            "w",
            "l -0.1:0.1",
            "w 0.3 @ 1.5",
            "0.5",
            "t 2",
            "0.7",
            "u",
            "u",
            "l off",
            "u",
            "q",
        ]
    )
    lines = out.splitlines()
    assert [event.kind for event in stored.history()] == [
        "proposed",
        "limited",
        "proposed",
        "observed",
        "proposed",
        "planned",
        "observed",
        "undone",
        "undone",
        "limited",
        "proposed",
        "undone",
        "proposed",
    ]
    design = stored.history()[0].data["design"][0]
    assert (
        f"The policy wanted covariate {design:.6g}; limited to {0.1 if design > 0 else -0.1}."
        in out
    )
    assert "after response 0.3: covariate" in out
    (row,) = (i for i, line in enumerate(lines) if "if response" in line)
    assert [line.split()[0] for line in lines[row + 1 : row + 6]] == [
        "5%",
        "25%",
        "50%",
        "75%",
        "95%",
    ]
    assert "Designs are limited to covariate -0.1 to 0.1." in out
    assert (
        "This experiment has 2 steps; the policy was trained for 3. The policy does not know" in out
    )
    assert "do not say what to expect by the end: designs are limited, they are for 3 steps." in out
    assert "undone: the number of steps" in out
    assert "stored: designs have no limits but the task's" in out
    assert out.count("undone: the limits") == 1
    assert "All steps are taken" in out


def test_refining_from_the_terminal(live, monkeypatch):
    asked = []

    def refine(session, seconds):
        asked.append(seconds)
        session.note("refined")
        before, after = (Remaining(value, value, 0.01) for value in (0.3, 0.5))
        return RefineResult(len(asked) == 1, "pce", 40, 4.6, before, after, 0.2, 0.02)

    monkeypatch.setattr(Session, "refine", refine)
    _, out, _ = live(["r", "r 5", "q"])
    assert asked == [30.0, 5.0]
    assert (
        "stored: Refined (40 policy steps by PCE in 5 s): the remaining steps promise more "
        "information: 0.300 nats" in out
    )
    assert "\nLeft as it was (40 policy steps" in out


def test_an_experiment_begins_with_limits_and_a_length(live):
    _, out, _ = live(["q"], "--experiment", "short", "--steps", "2", "--limits", "-0.1:0.1")
    assert "experiment 'short', 2 steps" in out
    assert "Designs are limited to covariate -0.1 to 0.1" in out
    code, _, err = live(["q"], "--experiment", "short", "--steps", "5")
    assert code == 2
    assert "the circumstances of experiment 'short'" in err
    for bad in (["--steps", "0"], ["--limits", "0:9"], ["--limits", "x"]):
        code, out, err = live(["q"], "--experiment", "other", *bad)
        assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_json_is_alone_on_stdout(live, stored):
    code, out, err = live(["0.5", "q"], "--json")
    assert code == 0
    told = json.loads(out)
    assert told["records"][0]["y"] == [0.5]
    assert told["proposal"]["design"] == list(stored.propose().design)
    assert "step 1 of 3" in err


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--seed", "x"], "--seed, got 'x'"),
        (["--seed", "4"], "the seed of experiment 'bench'"),
        (["--db", "/nowhere/at/all.sqlite"], "unable to open"),
        (["--experiment", "a\x1b[2Jb"], "the name of an experiment"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_options_are_one_line(folder, tmp_path, stored, capsys, options, what):
    db = [] if "--db" in options else ["--db", str(tmp_path / "live.sqlite")]
    name = [] if "--experiment" in options else ["--experiment", stored.name]
    assert command(["live", str(folder), *db, *name, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert what in err


def test_a_run_that_is_none_is_one_line(tmp_path, capsys):
    assert command(["live", str(tmp_path)]) == 2
    assert "no config.toml in it" in capsys.readouterr().err


def test_marginals_are_drawn_within_their_range():
    drawn = draw(MarginalSummary(Quantity("x"), 0.0, 1.0, (-1.0, -0.5, 0.0, 0.5, 1.0)), -2.0, 2.0)
    assert len(drawn) == WIDTH
    assert drawn == "." * 10 + "-" * 5 + "=" * 5 + "|" + "=" * 5 + "-" * 5 + "." * 10
    assert (
        draw(MarginalSummary(Quantity("x"), 9.0, 0.0, (9.0,) * 5), -2.0, 2.0)
        == "." * (WIDTH - 1) + "|"
    )
    assert len(draw(MarginalSummary(Quantity("x"), 1.0, 0.0, (1.0,) * 5), 1.0, 1.0)) == WIDTH


def converse(master, lines, seen):
    """Answer every prompt with the next line, and keep what was on the screen."""
    waiting = list(lines)
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the other side was closed
            return
        if not data:
            return
        seen.append(data.decode(errors="replace"))
        if "".join(seen).endswith(("> ", "again: ")) and waiting:
            os.write(master, waiting.pop(0).encode() + b"\n")


def test_on_a_terminal_it_is_the_same(folder, tmp_path, monkeypatch, stored):
    master, slave = pty.openpty()
    seen = []
    thread = threading.Thread(
        target=converse, args=(master, ["0.5", "s", "1,5", "1e4", "y", "f"], seen)
    )
    thread.start()
    with open(slave, closefd=False) as source, open(os.dup(slave), "w") as screen:
        monkeypatch.setattr(sys, "stdin", source)
        monkeypatch.setattr(sys, "stdout", screen)
        code = command(
            ["live", str(folder), "--db", str(tmp_path / "live.sqlite"), "--experiment", "bench"]
        )
        monkeypatch.undo()
    os.close(slave)
    thread.join(timeout=20)
    os.close(master)
    assert code == 0
    assert [record.y for record in stored.state.records] == [(0.5,), None, (1e4,)]
    assert stored.state.finished
    screen = "".join(seen)
    assert "comma" in screen
    assert screen.count("response > ") >= 4
    # Python, with the same seed and outcomes, proposes the designs that were on the screen.
    with Session.create(load(folder), db=tmp_path / "python.sqlite", seed=3) as python:
        for y in (0.5, None, 1e4):
            design = python.propose().design
            assert f"covariate  {design[0]:.6g}\r\n" in screen
            _ = python.skip() if y is None else python.observe(y)
        both = [[r.proposal.design for r in session.state.records] for session in (stored, python)]
        assert both[0] == both[1]
        assert len(set(both[0])) > 1


@pytest.mark.slow
def test_kill_9_and_ctrl_c_on_a_terminal_of_its_own(folder, tmp_path, stored):
    """A process in a pseudo-terminal is killed after its first answer; another goes on, and is
    interrupted.
    """
    code = [sys.executable, "-c", "from scorebed.cli import main; main()"]
    arguments = [
        "live",
        str(folder),
        "--db",
        str(tmp_path / "live.sqlite"),
        "--experiment",
        "bench",
    ]

    def sit(lines, ends_with, signal_):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*code, *arguments], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        seen, waiting = "", list(lines)
        while not (seen.endswith("> ") and ends_with in seen and not waiting):
            seen += os.read(master, 65536).decode(errors="replace")
            if seen.endswith("> ") and waiting:
                os.write(master, waiting.pop(0).encode() + b"\n")
                seen += "\n"
        os.kill(process.pid, signal_)
        try:
            while data := os.read(master, 65536):
                seen += data.decode(errors="replace")
        except OSError:
            pass
        os.close(master)
        return process.wait(timeout=60), seen

    returned, seen = sit(["0.5"], "step 2 of 3", signal.SIGKILL)
    assert returned == -signal.SIGKILL
    design = stored.propose().design[0]
    assert [record.y for record in stored.state.records] == [(0.5,)]
    assert f"covariate  {design:.6g}" in seen
    returned, seen = sit(["-1"], "step 3 of 3", signal.SIGINT)
    assert returned == 130
    assert f"covariate  {design:.6g}" in seen
    assert "saved in" in seen
    assert [record.y for record in stored.state.records] == [(0.5,), (-1.0,)]


def test_several_designs_at_once_are_entered_by_their_numbers(live, stored):
    lines = ["0.4", "9: 0.4", "2: 0.31", "s 1", "0.2", "f"]
    code, out, err = live(lines, "--parallel", "2", "--stop-below", "9")
    assert (code, err) == (0, "")
    assert "design 1 of 3: measure at" in out
    assert out.index("design 2 of 3") < out.index("not stored: an entry, got '0.4'")
    assert "for example 1: 0.52" in out
    assert "stored: step 1, response 0.31" in out
    assert "designs that wait for an outcome: 1, 3" in out
    assert "stored: step 2 skipped" in out
    assert "stored: step 3, response 0.2" in out
    assert "It is time to stop: the next step tells at most" in out
    assert [r.proposal.step for r in stored.state.records] == [2, 1, 3]
    assert stored.state.finished
    assert stored.summary()["stopping"] is None  # nobody says here what information is worth


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--parallel", "0"], "whole number from 1"),
        (["--parallel", "65"], "from 1 to 64"),
        (["--stop-below", "0"], "a positive number"),
        (["--stop-below", "nan"], "a positive number"),
        (["--price-per-nat", "5"], "whose designs cost nothing"),
    ],
)
def test_wrong_worth_and_numbers_are_refused_in_one_line(live, options, words):
    code, _, err = live(["q"], *options)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


def test_on_a_terminal_everything_is_compiled_before_the_first_question(
    folder, tmp_path, monkeypatch, capsys
):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("q\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert command(["live", str(folder), "--db", str(tmp_path / "tty.sqlite")]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("compiling, so that no entry waits later ...\n")
    assert all(part in err for part in ("designs", "what is improbable", "the posterior"))
    assert "step 1 of 3" in out
