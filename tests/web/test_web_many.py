"""A file of very many experiments: the list asks the run's own files once, and counts are exact."""

from scorebed.runs.artifacts import fingerprint
from scorebed.session.events import Event
from scorebed.session.policy_runner import policy_sha256
from scorebed.web import hub as hub_module

MANY = 300


def test_the_hashes_of_the_run_are_computed_once_for_the_whole_list(hub, run, monkeypatch):
    values = {
        "run": run.path.name,
        "task": run.config.task,
        "fingerprint": fingerprint(run.task),
        "policy_sha256": policy_sha256(run),
        "seed": 1,
        "horizon": 3,
    }
    steps = [
        Event(1, "proposed", 1, "", {"design": [0.5]}, None),
        Event(2, "observed", 1, "", {"used": [0.5], "y": [0.1]}, None),
    ]
    with hub.store.writing():
        for number in range(MANY):
            other = {"fingerprint": "0" * 16} if number % 3 == 0 else {}
            hub.store.begin({**values, **other, "name": f"e{number}"}, steps)
    asked = []
    real = hub_module.require_same

    def counted(*given):
        asked.append(given)
        return real(*given)

    monkeypatch.setattr(hub_module, "require_same", counted)
    for _ in range(2):
        listed = hub.listed()
        assert len(listed) == MANY
        assert sum(each.ours for each in listed) == MANY * 2 // 3
        assert all(len(each.state.records) == 1 for each in listed)
    assert len(asked) == 2
