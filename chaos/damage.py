"""Flipped bits and missing ends in every kind of file: found, or harmless, and none silently used.

A file is damaged and read as scorebed reads it. *Found* means that it is refused in one sentence or
left out with a warning; *harmless*, that everything read is as it was. What is read otherwise and
without a word is a broken promise."""

import dataclasses
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from chaos.parts import Found, Part, dice
from chaos.tiny import finished_run, finished_study
from scorebed.errors import ScorebedError
from scorebed.paper.units import read_record
from scorebed.runs import seal, strict_json
from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.execution import job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.load import load, open_config
from scorebed.runs.user_parts import BUILT_IN
from scorebed.session.io import read_json
from scorebed.session.session import Session
from scorebed.session.store import Store
from scorebed.sweeps.study import RESULT, open_study
from scorebed.sweeps.winner import judge_winner

PAPER = Path(__file__).parents[1] / "docs" / "reproduction" / "records"
UNREAD = ("lock", "report.html", "live.token")  # hold no result: nothing is read back from them


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of file: an intact folder that has some, which, and how they are read."""

    name: str
    folder: Path
    files: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]


def damage(work: Path, number: int, cases: int) -> Found:
    """As many flips, and a fifth as many truncations, spread over all kinds."""
    found, chance = Found(), dice("damage", number)
    kinds = every_kind(work)
    whole = {kind.name: kind.read(_copy(kind.folder, work / "damaged")) for kind in kinds}
    for case in range(cases + cases // 5):
        kind = kinds[case % len(kinds)]
        folder = _copy(kind.folder, work / "damaged")
        files = [path for path in kind.files(folder) if path.stat().st_size > 0]
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        cut = case >= cases
        if cut:
            at = chance.randrange(len(data))
            damaged = bytes(data[:at])
        else:
            at = chance.randrange(8 * len(data))
            data[at // 8] ^= 1 << at % 8
            damaged = bytes(data)
        path.chmod(0o644)
        path.write_bytes(damaged)
        what = "truncations" if cut else "flips"
        outcome = _outcome(kind, folder, whole[kind.name])
        found.counts[what] += 1
        found.counts["cases"] += 1
        found.counts[f"{what} {outcome}"] += 1
        found.counts[f"{kind.name}: {outcome}"] += 1
        where = f"{path.relative_to(folder)}, {'cut at' if cut else 'bit'} {at}"
        found.expect(outcome in ("found", "harmless"), f"{kind.name}: {where}: {outcome}")
    return found


def _outcome(kind: Kind, folder: Path, whole: Any) -> str:
    said = _Said()
    logger = logging.getLogger("scorebed")
    logger.addHandler(said)
    try:
        value = kind.read(folder)
    except ScorebedError:
        return "found"
    except Exception as error:
        return f"traceback {type(error).__name__}: {error}"
    finally:
        logger.removeHandler(said)
    if said.lines:
        return "found"
    return "harmless" if _same(value, whole) else "silently used"


class _Said(logging.Handler):
    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _same(a: Any, b: Any) -> bool:
    ours, theirs = (jax.tree.flatten(each) for each in (a, b))
    return ours[1] == theirs[1] and all(
        np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind == "f")
        for x, y in zip(ours[0], theirs[0], strict=True)
    )


def _copy(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(folder, to)


# ---- the kinds


def every_kind(work: Path) -> list[Kind]:
    """All of them, made once in a folder."""
    run = finished_run(work)
    live, log = _experiments(work, run)
    study = finished_study(work)
    template = _templates(run)
    return [
        Kind("run folder", run, _of_run, lambda folder: _read_run(folder)),
        Kind(
            "checkpoints",
            run,
            lambda folder: sorted((folder / "checkpoints").rglob("*.*")),
            lambda folder: {
                stage: Checkpoints(folder / "checkpoints" / stage).latest(like)
                for stage, like in template.items()
            },
        ),
        Kind("session", live, lambda folder: [folder / "live.sqlite"], _read_experiments),
        Kind("session's log", log, lambda folder: [folder / "live.sqlite-wal"], _read_experiments),
        Kind(
            "exported experiment",
            live,
            lambda folder: [folder / "experiment.json"],
            lambda folder: read_json(load(run).task, folder / "experiment.json")._asdict(),
        ),
        Kind("study", study, _of_study, _read_study),
        Kind("records", _records(work), lambda folder: sorted(folder.rglob("*.json")), _read_paper),
    ]


def _of_run(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.name not in UNREAD and not path.name.startswith("live")
    )


def _read_run(folder: Path) -> Any:
    """All that a run says: by `load`, and by what reads the rest."""
    run = load(folder)
    opened = RunFolder.open(folder)
    files = {path.name: opened.read_json(path.name) for path in sorted(folder.glob("*.json"))}
    networks = eqx.filter((run.policy, run.score), eqx.is_array)
    return [repr(run.config), repr(run.record), networks, files, opened.read_metrics()]


def _templates(run: Path) -> dict[str, Any]:
    """What the checkpoints of every stage of a run are read into."""
    folder = RunFolder.open(run)
    config = open_config(folder, BUILT_IN)
    job, method = job_for(config, load(run).task), config.trained_by
    upfront = method.upfront(job, 0)
    assert upfront is not None
    learned = upfront.result(upfront.start())
    (name, count) = job.groups(method.parts(job), 0)[0]
    policies = method.train(job, learned, name, count)
    assert policies is not None
    return {stage.name: stage.start() for stage in (upfront, policies)}


def _experiments(work: Path, run: Path) -> tuple[Path, Path]:
    """A file of experiments that was closed, and one as a kill leaves it, with its log."""
    closed, killed = work / "closed", work / "killed"
    if not killed.exists():
        closed.mkdir()
        for step in range(3):
            with Session.open(run, db=closed / "live.sqlite", experiment="bench", seed=3) as one:
                one.propose()
                one.observe(0.1 * step - 0.7, token=f"token {step}")
                one.note("warm")
                (closed / "experiment.json").write_text(one.export_json())
        with Session.open(run, db=closed / "live.sqlite", experiment="other", seed=4) as one:
            for step in range(3):
                one.propose()
                one.observe(0.3 * step + 0.1)
            one.correct(2, 0.5)
            aside = killed.with_name("killing")
            shutil.copytree(closed, aside)  # while it is open: nothing is in the file itself yet
            aside.rename(killed)
    return closed, killed


def _read_experiments(folder: Path) -> Any:
    store = Store(folder / "live.sqlite")
    try:
        each = store.experiments()
        return [(repr(one), repr(store.events(one.id)), repr(store.state(one))) for one in each]
    finally:
        store.close()


def _of_study(folder: Path) -> list[Path]:
    own = [path for path in folder.iterdir() if path.is_file() and path.name not in UNREAD]
    return sorted(own) + sorted((folder / "upfront").iterdir())


def _read_study(folder: Path) -> Any:
    study = open_study(folder)
    study.check_files()
    trials = [
        (t.number, t.state.name, repr(t.params), repr(t.user_attrs.get(RESULT)))
        for t in study.load().trials
    ]
    values = {f.name: getattr(study, f.name) for f in dataclasses.fields(study)}
    winner = judge_winner(study)
    return [repr({k: v for k, v in values.items() if k != "folder"}), trials, repr(winner)]


def _records(work: Path) -> Path:
    """Some of the records that the figures of the paper rest on, as they are written now."""
    folder = work / "records"
    folder.mkdir(exist_ok=True)
    for path in sorted(PAPER.glob("*.json"))[:4]:
        values = seal.unsealed(strict_json.loads(path.read_bytes()))
        text = strict_json.dumps(seal.sealed(values), indent=1)
        (folder / path.name).write_text(text)
    return folder


def _read_paper(folder: Path) -> Any:
    return [repr(read_record(path)) for path in sorted(folder.rglob("*.json"))]


DAMAGE = Part(
    name="damage",
    title="flipped bits and missing ends of files",
    promise="each is found or harmless; none is silently used",
    counted="cases",
    piece=damage,
    pieces=10,
    cases=100,
    small=14,
)
