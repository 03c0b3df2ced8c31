"""A study on disk: what was asked for, the score that it took in, and Optuna's storage of trials.

    study.toml      what was asked for; never changes
    upfront/        configuration and files of the score, read-only, known by their sha256
    journal.log     Optuna's trials, unless a database holds them
    leases/         who runs which trial
    trials/NUMBER   run folders
    winner-NUMBER.json, report.html

The folder has to be on a disk that all workers share. Nothing here needs JAX.
"""

import dataclasses
import hashlib
import logging
import os
import shutil
import stat
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import tomli_w
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages.journal import JournalStorage
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial

from scorebed._platform import sync_folder
from scorebed.errors import InvalidValueError, NewerFormatError, RunFolderError, require
from scorebed.runs import seal
from scorebed.runs.durable import explained, make_folder, replace_file, write_new
from scorebed.sweeps.heartbeats import heartbeat_options
from scorebed.sweeps.journal import JournalFile
from scorebed.sweeps.leases import SECONDS

FORMAT = 1
STUDY, UPFRONT, JOURNAL, LEASES, TRIALS = "study.toml", "upfront", "journal.log", "leases", "trials"
RESULT = "result"  # the user attribute of a trial that holds what it came to


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepStudy:
    """One sweep. Settings of its trials are the preset's, `overrides` over them, the space's
    above all.
    """

    folder: Path
    name: str
    """Its name in the storage."""
    task: str
    preset: str
    method: str
    trials: int
    seed: int
    sampler: str
    """The search that suggests settings: a name of `SEARCHES`."""
    halvings: int
    """Times that the worse half of the trials is stopped on the way; 0 for never."""
    storage: str
    """The URL of a database; empty for the journal file."""
    overrides: Sequence[str]
    files: Mapping[str, str]
    """The sha256 of every file that was taken in with the score."""
    space: Mapping[str, Any]

    @property
    def leases_folder(self) -> Path:
        """Where the leases are."""
        return self.folder / LEASES

    @property
    def trials_folder(self) -> Path:
        """Where the run folders are."""
        return self.folder / TRIALS

    @property
    def upfront_folder(self) -> Path:
        """Where the score is."""
        return self.folder / UPFRONT

    def write(self, source: Path) -> None:
        """Make the folder of a new study, with the files of the score from `source`; nothing stays
        if that fails.
        """
        if self.folder.exists() or self.folder.is_symlink():
            raise RunFolderError(
                f"the study {self.folder}",
                got="a folder that exists",
                expected="a new one, because results are never overwritten",
                fix="choose another name, or go on with 'scorebed sweep work'.",
            )
        with explained("making the study", self.folder):
            make_folder(self.folder)
        try:
            for each in (self.upfront_folder, self.leases_folder, self.trials_folder):
                make_folder(each)
            for name, digest in self.files.items():
                with explained("reading", source / name):
                    data = (source / name).read_bytes()
                _require_digest(source / name, hashlib.sha256(data).hexdigest(), digest)
                target = self.upfront_folder / name
                with explained("writing", target, needed=len(data)):
                    write_new(target, data)
                    target.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
            sync_folder(self.upfront_folder)
            self._create_in_storage()
            replace_file(self.folder / STUDY, seal.sealed_text(tomli_w.dumps(self._values())))
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def check_files(self) -> None:
        """Refuse to go on with a score that is not the one that was taken in."""
        for name, digest in self.files.items():
            path = self.upfront_folder / name
            with explained("reading", path):
                found = hashlib.sha256(path.read_bytes()).hexdigest()
            _require_digest(path, found, digest)

    @property
    def there(self) -> bool:
        """Whether its folder can be read: the disk that it is on may go away."""
        try:
            return (self.folder / STUDY).is_file()
        except OSError:
            return False

    def among(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Of the trials of its storage those that count. A worker that slept while it began one may
        have begun one too many.
        """
        return [trial for trial in trials if trial.number < self.trials]

    def load(self, *, lease_seconds: float = SECONDS, brief: bool = False) -> OptunaStudy:
        """Its trials, as Optuna has them; in a database their heartbeats last as long as leases. In
        `brief`, trials of a journal that are over lack Optuna's own record of their settings.
        """
        try:
            storage = self._open_storage(lease_seconds, brief=brief)
            return optuna.load_study(study_name=self.name, storage=storage)
        except KeyError:
            raise InvalidValueError(
                f"the study {self.folder}",
                got=f"no study '{self.name}' in its storage",
                expected="the storage that it was created with",
                fix="bring it back, or create the study again in another folder.",
            ) from None

    def _create_in_storage(self) -> None:
        if not self.storage:
            with explained("writing", self.folder / JOURNAL):
                write_new(self.folder / JOURNAL, b"")
        try:
            optuna.create_study(
                study_name=self.name, storage=self._open_storage(), direction="maximize"
            )
        except optuna.exceptions.DuplicatedStudyError:
            raise InvalidValueError(
                f"the study {self.name}",
                got="a storage that has one of this name",
                expected="a new name",
                fix="call the folder otherwise, or give another --storage.",
            ) from None

    def _open_storage(self, lease_seconds: float = SECONDS, *, brief: bool = False) -> BaseStorage:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if not self.storage:
            return JournalStorage(JournalFile(self.folder / JOURNAL, brief=brief))
        from sqlalchemy.pool import NullPool  # late: the journal does without

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                # Workers ask seldom: a connection that is kept would be dropped by the server.
                return RDBStorage(
                    self.storage,
                    engine_kwargs={"poolclass": NullPool},
                    **heartbeat_options(lease_seconds),
                )
            except (ImportError, ValueError, optuna.exceptions.StorageInternalError) as error:
                raise InvalidValueError(
                    "--storage",
                    got=" ".join(str(error).split())[:200],
                    expected="a URL such as postgresql://HOST/NAME, and its driver",
                    fix="check the URL; pip install 'scorebed[postgres]' for PostgreSQL, pymysql "
                    "for MySQL.",
                ) from None
            except Exception as error:  # a driver's own errors have no common base
                if type(error).__module__.partition(".")[0] != "sqlalchemy":
                    raise
                raise InvalidValueError(
                    "--storage",
                    got=" ".join(str(error).split())[:200],
                    expected="a database that can be reached",
                    fix="check the URL and that the server runs.",
                ) from None

    def _values(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {"format": FORMAT, **{k: v for k, v in values.items() if k != "folder"}}


def open_study(folder: Path) -> SweepStudy:
    """A study that exists."""
    path = folder / STUDY
    if not path.is_file():
        raise RunFolderError(
            f"the study {folder}",
            got=f"no {STUDY} in it" if folder.is_dir() else "no such folder",
            expected="a folder that 'scorebed sweep create' has made",
            fix=f"create it: scorebed sweep create {folder} --score RUN",
        )
    with explained("reading", path):
        data = path.read_bytes()
    try:
        seal.check_text(data)
        values = tomllib.loads(data.decode())
        number = values.pop("format")
        if number == FORMAT:
            return SweepStudy(folder=folder, **values)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"the study {path}",
            got=f"'{error}'",
            expected="what 'scorebed sweep create' wrote",
            fix="bring the file back; its trials are untouched.",
        ) from None
    raise NewerFormatError(
        f"the study {path}",
        got=f"format {number}",
        expected=f"format {FORMAT}",
        fix="install a newer version of scorebed.",
    )


def digests(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The sha256 of files."""
    found = {}
    for name in names:
        with explained("reading", folder / name):
            found[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return found


def worker_name() -> str:
    """Who this process is: host and process id."""
    return f"{os.uname().nodename}-{os.getpid()}"


def _require_digest(path: Path, found: str, expected: str) -> None:
    require(
        found == expected,
        f"the file {path}",
        got=f"sha256 {found[:16]}…",
        expected=f"sha256 {expected[:16]}…, that of the study",
        fix="bring the file back that the study was created with.",
    )
