"""Malformed commands, made from the commands themselves: every one is refused in one line, with
exit code 2, and nothing is written.

The commands, their options and the types of these come from the application's own parser, so that
a new option is tried as soon as it exists. All run in this process; some, in one of their own."""

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App

from chaos.parts import Found, Part, dice
from chaos.tiny import command, finished_run, finished_study
from scorebed.cli._app import _app

# Values that no option of their kind takes.
NUMBERS = (
    *("nan", "inf", "-inf", "-1", "1e400", "-1e400", "1,5", "0x10", "1e-400", "", " ", "--", "²"),
    *("9" * 400, "1/0", "None", "true", "1e", "٣x", "1;2", "[1]", "1 2", "one", "-0.5", "1e19"),
)
NAMES = ("", " ", "nosuch", "NOSUCH", "../..", "\udcff", "x" * 3000, "a\nb", "é", "{}", "a:b")
CODE = ("nosuch.py:Task", "broken.py:Task", "empty.py:Task", ":", ":Task", "broken.py:", "a.py:b:c")
PATHS = ("nosuch", "binary", "line", "folder", ".", "/", "broken.py", "x" * 300, "binary/x", "")
PLACES = ("folder", "/", ".", "binary/x", "x" * 300)  # where nothing can be written
SETTINGS = (
    *(
        "steps",
        "=",
        "=1",
        "a=b",
        "score.steps=-1",
        "score.steps=nan",
        "score.steps=1e400",
        "task=x",
    ),
    *("score.stepz=1", "task=pendulum", "method=nosuch", "seed=[", 'seed="', "seed=1\nseed=2"),
    *(
        "score=1",
        "policy.steps=1",
        "evaluation.outer=0",
        "score.steps={}",
        "budget=-1",
        "minutes=3",
    ),
)
SECONDS = 20.0  # of processor time that a refusal may take
PATIENCE = 120  # seconds of any kind
# Options that take any text, or make what they name: the place before them is wrong instead.
ANYTHING = ("--experiment", "--storage", "--host", "--dask", "--coordinator", "--page", "--records")
WRITTEN = ("--out", "--db")
NEVER_ENDS = ("serve",)


def malformed(work: Path, number: int, cases: int) -> Found:
    """As many commands, one in fifty of them in a process of its own."""
    found, chance = Found(), dice("commands", number)
    place = _place(work)
    before, handler = _listing(place), signal.signal(signal.SIGALRM, _too_long)
    shapes = list(every_command())
    for case in range(cases):
        words = _command(shapes, (number * cases + case), chance)
        begun = time.process_time()
        apart = case % 50 == 49
        try:
            code, said = _apart(words, place) if apart else _here(words, place)
        except BaseException as error:
            code, said = -1, f"{type(error).__name__}: {error}"
        seconds = time.process_time() - begun
        shown = " ".join(repr(w) if len(w) < 80 else f"{w[:20]}… ({len(w)})" for w in words)
        lines = said.strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        refused = code == 2 and len(errors) == 1 and lines[-1] == errors[0]
        found.counts["commands"] += 1
        found.counts["in processes of their own" if apart else "in this process"] += 1
        found.counts[f"'{words[0]}'"] += 1
        found.expect(refused, f"{shown}: exit {code}, {said[-400:]!r}")
        found.expect("Traceback" not in said, f"{shown}: a traceback")
        found.expect("Fix: " in said or not refused, f"{shown}: no fix: {said!r:.300}")
        found.expect(len(said) < 4000, f"{shown}: {len(said)} characters")
        found.expect(seconds < SECONDS, f"{shown}: {seconds:.0f} s")
        after = _listing(place)
        found.expect(after == before, f"{shown}: wrote {sorted(after - before)[:3]}")
        before = after
    signal.signal(signal.SIGALRM, handler)
    return found


class Shape(typing.NamedTuple):
    """A command: its words, its options by name with their types, and its places."""

    words: tuple[str, ...]
    options: dict[str, Any]
    places: list[Any]


def every_command() -> Iterator[Shape]:
    """All commands, with those below them, from the parser."""
    app = _app([])
    for name in app:
        if not name.startswith("-"):
            yield from _shapes(app[name], (name,))


def _shapes(app: App, words: tuple[str, ...]) -> Iterator[Shape]:
    below = [name for name in app if not name.startswith("-")]
    if below:
        for name in below:
            yield from _shapes(app[name], (*words, name))
        return
    options, places = {}, []
    for argument in app.assemble_argument_collection():
        names = [name for name in argument.names if name.startswith("--")]
        if names:
            options[names[0]] = argument.hint
        elif not argument.parameter.name_transform or argument.index is not None:
            places.append(argument)
    yield Shape(words, options, places)


def _command(shapes: list[Shape], case: int, chance: random.Random) -> list[str]:
    """One command with one thing wrong, every option in turn."""
    every = [(shape, name) for shape in shapes for name in shape.options]
    shape, option = every[case % len(every)]
    kinds = [_bad_value, _bad_value, _bad_value, _unknown, _missing, _twice, _bad_place, _none]
    return chance.choice(kinds)(shape, option, chance)


def _good_places(shape: Shape) -> list[str]:
    """What stands in the places of a command that is otherwise right."""
    named = {
        "task": "linear-gaussian",
        "run": "run",
        "study": "study",
        "name": "compare",
        "item": "table1",
        "table": "location",
    }
    return [named.get(place.name.strip("-").lower(), "run") for place in shape.places]


def _bad_value(shape: Shape, option: str, chance: random.Random) -> list[str]:
    hint = shape.options[option]
    kinds = typing.get_args(hint) or (hint,)
    if option == "--set":
        return [*shape.words, *_good_places(shape), option, chance.choice(SETTINGS)]
    if bool in kinds:
        return [*shape.words, *_good_places(shape), f"{option}={chance.choice(NUMBERS[:9])}"]
    if int in kinds or float in kinds:
        return [*shape.words, *_good_places(shape), f"{option}={chance.choice(NUMBERS)}"]
    if option in WRITTEN:
        values: tuple[str, ...] = PLACES
    elif Path in kinds:
        values = PATHS
    else:
        values = (*CODE, *NAMES)
    shallow = option in (*ANYTHING, *WRITTEN) or shape.words[0] in NEVER_ENDS
    places = ["nosuch" for _ in shape.places] if shallow else _good_places(shape)
    return [*shape.words, *places, f"{option}={chance.choice(values)}"]


def _unknown(shape: Shape, option: str, chance: random.Random) -> list[str]:
    wrong = option + chance.choice("xyz")
    return [*shape.words, *_good_places(shape), f"{wrong}={chance.choice(NAMES)}"]


def _missing(shape: Shape, option: str, chance: random.Random) -> list[str]:
    """An option at the end without its value; of one that takes none, a value too many."""
    del chance
    if bool in (typing.get_args(shape.options[option]) or (shape.options[option],)):
        return [*shape.words, *_good_places(shape), option, "one", "too", "many"]
    return [*shape.words, *_good_places(shape), option]


def _twice(shape: Shape, option: str, chance: random.Random) -> list[str]:
    bad = chance.choice(NUMBERS[:9])
    return [*shape.words, *["nosuch" for _ in shape.places], f"{option}={bad}", f"{option}={bad}"]


def _bad_place(shape: Shape, option: str, chance: random.Random) -> list[str]:
    del option
    values = (*PATHS, *CODE, *NAMES)
    return [*shape.words, *[chance.choice(values) for _ in shape.places], "--nosuch"]


def _none(shape: Shape, option: str, chance: random.Random) -> list[str]:
    """No such command, or one with a piece of nonsense in front."""
    del option
    return [chance.choice(["nosuch", "-x", "--sed", "", "trian", shape.words[0] + "s"])]


def _place(work: Path) -> Path:
    """A folder with files that are not what they are taken for."""
    place = work / "place"
    if place.exists():
        return place
    place.mkdir()
    shutil.copytree(finished_run(work), place / "run")
    shutil.copytree(finished_study(work), place / "study")
    (place / "empty").touch()
    (place / "empty.py").touch()
    (place / "broken.py").write_text("class Task(:\n")
    (place / "binary").write_bytes(bytes(range(256)) * 64)
    (place / "line").write_text("1," * 2_000_000)
    (place / "folder").mkdir(exist_ok=True)
    return place


def _listing(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def _here(words: list[str], place: Path) -> tuple[int, str]:
    before, stdin = Path.cwd(), sys.stdin
    os.chdir(place)
    sys.stdin = io.StringIO("")
    signal.alarm(PATIENCE)
    try:
        return command(words)
    finally:
        signal.alarm(0)
        sys.stdin = stdin
        os.chdir(before)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"no answer in {PATIENCE} s")


def _apart(words: list[str], place: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", "from scorebed.cli import main; main()", *words],
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr


COMMANDS = Part(
    name="commands",
    title="malformed commands",
    promise="each is refused in one line, with exit code 2, and nothing is written",
    counted="commands",
    piece=malformed,
    pieces=10,
    cases=100,
    small=60,
)
