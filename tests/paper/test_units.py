"""Records: a unit is carried out once, by whoever comes first, and only for what is asked."""

import dataclasses
import json
import threading
import time

import pytest

from pools import Here
from scorebed.errors import InvalidValueError
from scorebed.paper import shared, units
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitPlan, carry_out, diverged, find_record, finished
from scorebed.runs.lock import Lock
from scorebed.runs.stage import Progress
from scorebed.training.fit import TrainingStoppedError


@dataclasses.dataclass(frozen=True)
class Counted(Unit):
    """A unit that counts how often it is carried out."""

    number: int
    done: list = dataclasses.field(default_factory=list, hash=False)

    @property
    def name(self):
        return f"unit-{self.number}"

    def definition(self):
        return {"number": self.number}

    def estimate(self, study):
        del study
        return UnitPlan(self.number, "small")

    def carry_out(self, study, *, progress):
        del progress
        self.done.append(study.scale)
        return {"square": self.number**2, "infinite": float("inf")}


@dataclasses.dataclass(frozen=True)
class Diverging(Counted):
    """A unit whose training stops before its end."""

    def carry_out(self, study, *, progress):
        super().carry_out(study, progress=progress)
        raise TrainingStoppedError("training stopped at step 30")


def study(tmp_path, **settings):
    return Study(out=tmp_path / "out", **{"scale": 0.5, **settings})


def test_a_unit_is_carried_out_once_and_its_record_says_by_what(tmp_path):
    unit, asked = Counted(3), study(tmp_path)
    assert find_record(unit, asked) is None
    first = carry_out([unit], asked, progress=Progress())["unit-3"]
    again = carry_out([unit], asked, progress=Progress())["unit-3"]
    assert first == again
    assert unit.done == [0.5]
    assert first.result == {"square": 9, "infinite": None}
    assert first.settings["unit"] == {"number": 3}
    kept = json.loads((asked.records_folder / "unit-3.json").read_text())
    assert (kept["format"], len(kept["hash"])) == (1, 64)


def test_a_unit_that_diverges_is_recorded_as_such_and_others_go_on(tmp_path):
    broken, sound, asked = Diverging(1), Counted(2), study(tmp_path)
    for _ in range(2):
        assert list(carry_out([broken, sound], asked, progress=Progress())) == ["unit-2"]
    assert broken.done == [0.5], "not carried out again"
    assert list(finished([broken, sound], asked)) == ["unit-2"]
    (reason,) = diverged([broken, sound], asked).values()
    assert "stopped at step 30" in reason


def test_units_are_shared_out_among_workers_and_a_poisonous_one_is_reported(tmp_path, monkeypatch):
    asked_for = [Counted(1), Diverging(2), Counted(3), Counted(4)]

    class Item:
        @staticmethod
        def units(study):
            del study
            return asked_for

    monkeypatch.setattr(shared, "chosen_items", lambda _: [Item])
    asked = study(tmp_path, overrides=("seed=3",), records=tmp_path / "records")
    carry_out(asked_for[:1], asked, progress=Progress())
    pool = Here(poison="unit-4")
    failed = shared.share_units("table1", asked_for, asked, pool, progress=Progress())
    assert failed == {"unit-4": "poison"}
    assert sorted(pool.done) == ["unit-2", "unit-3"]
    assert [unit.done for unit in asked_for] == [[0.5], [0.5], [0.5], []]
    # The command itself then finds all records but one.
    assert list(carry_out(asked_for[:3], asked, progress=Progress())) == ["unit-1", "unit-3"]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"scale": 0.25}, "scale = 0.5, expected scale = 0.25"),
        ({"seed": 1}, "seed"),
        ({"repeats": 2}, "repeats"),
        ({"overrides": ("score.steps=1",)}, "set"),
    ],
)
def test_a_record_of_other_settings_is_refused_by_name(tmp_path, other, named):
    carry_out([Counted(1)], study(tmp_path), progress=Progress())
    unit = Counted(1)
    with pytest.raises(InvalidValueError, match=named) as refused:
        carry_out([Counted(2), unit], study(tmp_path, **other), progress=Progress())
    assert "unit-1.json" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out/records/unit-2.json").exists(), "refused before anything is begun"


def test_another_definition_is_refused_and_other_policies_have_records_of_their_own(tmp_path):
    carry_out([Counted(1)], study(tmp_path), progress=Progress())

    class Otherwise(Counted):
        def definition(self):
            return {"number": -1}

    with pytest.raises(InvalidValueError, match="unit"):
        find_record(Otherwise(1), study(tmp_path))
    ours = study(tmp_path, policies="ours")
    assert find_record(Counted(1), ours) is None
    assert carry_out([Counted(1)], ours, progress=Progress())["unit-1"].name == "unit-1-ours"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99}'])
def test_a_damaged_or_newer_record_is_refused_in_one_line(tmp_path, text):
    asked = study(tmp_path)
    asked.records_folder.mkdir(parents=True)
    values = text or '{"format": 2, "settings": {}, "result": {}}'
    (asked.records_folder / "unit-1.json").write_text(values)
    with pytest.raises(InvalidValueError, match="the record"):
        finished([Counted(1)], asked)


def test_records_may_lie_elsewhere_and_partial_ones_are_enough(tmp_path):
    asked = study(tmp_path, records=tmp_path / "kept")
    carry_out([Counted(1)], asked, progress=Progress())
    assert list(finished([Counted(1), Counted(2)], asked)) == ["unit-1"]
    assert (tmp_path / "kept/unit-1.json").exists()


def test_two_processes_share_the_units(tmp_path, monkeypatch):
    """A unit that another has in hand is passed over, and its record taken in the end."""
    monkeypatch.setattr(units, "LOOK_AGAIN", 0.01)
    asked = study(tmp_path)
    first, second = Counted(1), Counted(2)
    for folder in (asked.runs_folder, asked.records_folder):
        folder.mkdir(parents=True)
    other = Lock(asked.runs_folder / "unit-1.lock")
    other.acquire()
    found = {}
    thread = threading.Thread(
        target=lambda: found.update(carry_out([first, second], asked, progress=Progress()))
    )
    thread.start()
    deadline = time.monotonic() + 20
    while find_record(second, asked) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert second.done == [0.5]
    assert first.done == [], "the other has it"
    elsewhere = study(tmp_path / "elsewhere")
    carry_out([Counted(1)], elsewhere, progress=Progress())
    done = (elsewhere.records_folder / "unit-1.json").read_bytes()
    (asked.records_folder / "unit-1.json").write_bytes(done)
    other.release()
    thread.join(20)
    assert list(found) == ["unit-1", "unit-2"]
    assert first.done == []


def test_an_interrupted_unit_lets_go_of_its_lock(tmp_path):
    class Interrupted(Counted):
        def carry_out(self, study, *, progress):
            del study, progress
            raise KeyboardInterrupt

    asked = study(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out([Interrupted(1)], asked, progress=Progress())
    assert carry_out([Counted(1)], asked, progress=Progress())["unit-1"].result["square"] == 1
