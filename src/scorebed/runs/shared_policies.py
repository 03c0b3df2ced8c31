"""Policies of a run trained by many workers: pieces of its stages, put together in its folder.

What is learned upfront is in the run folder, which all workers share. A piece is one policy, from
the last checkpoint of its stage to the next step at which policies learn of each other: where the
worse half is stopped, or training may end for want of progress. The process that owns the run puts
the pieces of all policies together to the next checkpoint, and so on to the end; then the run goes
on as any other whose policies were trained.

    RUN/pieces/STAGE-BEGIN/MEMBER/WORKER/step-…     checkpoints of a piece by a worker

A worker writes below its own name and reads what others left of a piece, so that one that was
thought dead and wakes up disturbs nobody. Every policy has the key of its number: on CPUs, where
policies are trained in turn, the result is that of the run alone to the last bit, whatever the
number of workers; where an accelerator trains them at once it is the same up to rounding.
"""

import functools
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from scorebed.cluster.pool import PiecesFailedError, Pool, worker_name
from scorebed.runs import stage as stages
from scorebed.runs.checkpoint import Checkpoint, Checkpoints
from scorebed.runs.execution import Execution
from scorebed.runs.folder import CONFIG, RunFolder
from scorebed.runs.load import open_run
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import PartNames, read_parts
from scorebed.training.apart import Apart, from_plain, plain, put_in, put_together, take_apart
from scorebed.training.stage import Stage
from scorebed.training.watched import Block, Watched, moment

PIECES = "pieces"
OVER = "over"

# (repeat, part) of the stage
StageNumber: TypeAlias = tuple[int, int]


class Round(NamedTuple):
    """Pieces of a stage that depend on no other piece: groups of members, from one step to
    another.
    """

    stage: Stage
    start: Watched
    seconds: float
    until: int
    groups: Sequence[tuple[int, ...]]

    @property
    def begin(self) -> int:
        """The step of the checkpoint that it starts from."""
        return self.start.done


def train_shared(execution: Execution, pool: Pool, parts: PartNames) -> None:
    """Learn upfront what is left to learn, here, and train all policies of the run by the workers
    of a pool.
    """
    folder, going = execution.folder, _stages(execution)
    rounds = {number: _first_round(folder, stage) for number, stage in going.items()}
    while rounds := {number: each for number, each in rounds.items() if each.groups}:
        pieces = {
            _name(number, group): (
                str(folder.path.resolve()),
                list(parts),
                *(*number, each.begin, each.until, list(group)),
            )
            for number, each in rounds.items()
            for group in each.groups
        }
        _run(pool, pieces, execution.progress)
        rounds = {number: _next_round(folder, each) for number, each in rounds.items()}
    shutil.rmtree(folder.path / PIECES, ignore_errors=True)


def _run(pool: Pool, pieces: Mapping[str, tuple[Any, ...]], progress: Progress) -> None:
    done: list[str] = []

    def on_done(name: str) -> None:
        done.append(name)
        progress.update(len(done), name)

    progress.begin(f"policies by {pool.workers} workers", len(pieces), 0)
    found = pool.run(train_piece, pieces, on_done=on_done)
    progress.end(f"{len(done)} of {len(pieces)} pieces")
    if found.failed:
        raise PiecesFailedError(found.failed)


def train_piece(
    run: str,
    parts: Sequence[str | None],
    repeat: int,
    part: int,
    begin: int,
    until: int,
    members: Sequence[int],
) -> None:
    """A piece, on a worker: some members of a stage from one step to another. What is left of an
    earlier try is gone on with.
    """
    path = Path(run)
    written = (path / CONFIG).stat().st_mtime_ns
    folder, stage = _stage_of(path, PartNames(*parts), repeat, part, written)
    start = Checkpoints(folder.checkpoint_folder(stage.name)).load(begin, stage.start()).tree
    pieces = _pieces(folder, stage, begin, members)
    like = take_apart(start, members)
    found = _furthest(pieces, like)
    if found is not None and found.extra[OVER]:
        return
    own = Checkpoints(pieces / worker_name())
    history: Any = found.extra["history"] if found else []
    watched = put_in(start, members, found.tree) if found else start
    before: Any = found.extra["seconds"] if found else 0.0
    begun = saved = time.monotonic()

    def save(watched: Watched, *, over: bool) -> None:
        extra = {"history": history, "seconds": before + time.monotonic() - begun, OVER: over}
        # The last state is saved one step on, where it cannot meet that of the last block.
        step = watched.done + 1 if over else watched.done
        own.save(step, take_apart(watched, members), extra)

    def on_block(block: Block) -> None:
        nonlocal saved
        history.append(plain(moment(block)))
        if time.monotonic() - saved > stages.CHECKPOINT_SECONDS:
            save(block.watched, over=False)
            saved = time.monotonic()

    save(stage.go_on_apart(watched, members, until, on_block=on_block), over=True)


@functools.lru_cache(maxsize=4)
def _stage_of(
    path: Path, parts: PartNames, repeat: int, part: int, written: int
) -> tuple[RunFolder, Stage]:
    """A stage of a run, made once for all of its pieces that come to this process; `written` tells
    a run from another that had the same folder.
    """
    del written
    run = open_run(path, read_parts(parts), strict=True)
    execution = Execution(run.folder, run.config, run.task, progress=Progress())
    stage = _stages(execution, only=(repeat, part)).get((repeat, part))
    assert stage is not None, "pieces are of stages that there are"
    return run.folder, stage


def _stages(execution: Execution, only: StageNumber | None = None) -> dict[StageNumber, Stage]:
    """The stages in which policies are trained, of repeats that have not chosen one yet."""
    job, method, parts = execution.job, execution.method, execution.parts
    numbers = [(r, p) for r in range(job.repeats) for p in range(parts)]
    found = {}
    learned: dict[int, Any] = {}
    for repeat, part in numbers if only is None else [only]:
        chosen = execution.folder.path / f"policy-{repeat}.safetensors"
        name, count = job.groups(parts, repeat)[part]
        if count == 0 or (only is None and chosen.exists()):
            continue
        index = job.upfront_index(repeat, part, parts)
        if index not in learned:
            learned[index] = execution.upfront(index)
        stage = method.train(job, learned[index], name, count)
        if stage is not None:
            found[repeat, part] = stage
    return found


def _first_round(folder: RunFolder, stage: Stage) -> Round:
    """From the last checkpoint, or from the start, which becomes one: all workers take it from
    there.
    """
    checkpoints = Checkpoints(folder.checkpoint_folder(stage.name))
    found = checkpoints.latest(stage.start())
    if found is None:
        checkpoints.save(0, stage.start(), {"seconds": 0.0})
        return _round(stage, stage.start(), 0.0)
    return _round(stage, found.tree, float(found.extra["seconds"]))  # type: ignore[arg-type]


def _round(stage: Stage, start: Watched, seconds: float, *, over: bool = False) -> Round:
    over = over or start.done >= stage.last_step(start)
    groups = () if over else stage.shares(start)
    return Round(stage, start, seconds, stage.apart_until(start), groups)


def _next_round(folder: RunFolder, done: Round) -> Round:
    """Put the pieces of a round together to a checkpoint of the stage; the round after it."""
    stage, groups, seconds = done.stage, [], done.seconds
    for members in done.groups:
        found = _furthest(
            _pieces(folder, stage, done.begin, members), take_apart(done.start, members)
        )
        assert found is not None, "a piece that has ended leaves its state"
        kept: Any = found.extra
        seconds += float(kept["seconds"])
        groups.append(Apart(members, found.tree, [from_plain(each) for each in kept["history"]]))
    watched, history = put_together(done.start, groups)
    folder.truncate_metrics(stage.name, done.begin)
    for step, terms, lower in history:
        record = {"stage": stage.name, "step": step, "seconds": seconds}
        folder.append_metrics({**record, **terms, **({"lower": lower} if lower else {})})
    checkpoints = Checkpoints(folder.checkpoint_folder(stage.name))
    checkpoints.save(watched.done, watched, {"seconds": seconds})
    shutil.rmtree(_pieces(folder, stage, done.begin), ignore_errors=True)
    return _round(stage, watched, seconds, over=not stage.shareable)


def _pieces(
    folder: RunFolder, stage: Stage, begin: int, members: Sequence[int] | None = None
) -> Path:
    """Where the pieces of a round are, or one of them."""
    found = folder.path / PIECES / f"{stage.name}-{begin}"
    return found if members is None else found / str(members[0])


def _furthest(pieces: Path, like: Watched) -> Checkpoint | None:
    """The furthest that any worker has come with a piece."""
    if not pieces.is_dir():
        return None
    each = [Checkpoints(owner).latest(like) for owner in sorted(pieces.iterdir())]
    found = [checkpoint for checkpoint in each if checkpoint is not None]
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)


def _name(number: StageNumber, group: Sequence[int]) -> str:
    repeat, part = number
    return f"policy {group[0]} of stage policy-{repeat}-{part}"
