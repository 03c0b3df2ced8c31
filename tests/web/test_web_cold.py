"""Nobody's entry waits for a compilation. Compilations are held here by an event, so that nothing
depends on how fast the machine is: what is answered while they are held did not wait for them.
"""

import concurrent.futures
import contextlib
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")

from scorebed.session import policy_runner, posterior
from scorebed.session.session import Session
from scorebed.web import server

PATIENCE = 120.0  # seconds after which something that should not wait is taken to wait
HURRIED = {"Prefer": "respond-async"}
CHROMIUM = "/usr/bin/chromium"


class Held:
    """Programs that nobody can compile or run until `go`."""

    def __init__(self, monkeypatch):
        self._go, self._patch = threading.Event(), monkeypatch.setattr
        self.reached = threading.Event()

    def hold(self, module, *names):
        for name in names:
            self._patch(module, name, self._waiting(getattr(module, name)))

    def _waiting(self, program):
        def wait(*args):
            self.reached.set()
            assert self._go.wait(PATIENCE), "nobody let it go"
            return program(*args)

        return wait

    def go(self):
        self._go.set()


@pytest.fixture
def held(monkeypatch):
    made = Held(monkeypatch)
    yield made
    made.go()


def hold_posteriors(held):
    held.hold(posterior, "_draw", "_update", "_outcomes", "_tail")


def at_once(act, *args, **options):
    """What `act` gives while programs are held; fails if it waits for them."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    try:
        return pool.submit(act, *args, **options).result(PATIENCE / 2)
    finally:
        pool.shutdown(wait=False)


def test_an_outcome_is_stored_and_answered_while_posteriors_compile(instrument, begun, hub, held):
    hold_posteriors(held)
    hub.warm()
    assert held.reached.wait(PATIENCE)
    first = instrument.get(begun).json()["next"]
    body = {"y": "60", "proposal": first["id"], "token": "t", "ask": True}
    for _ in range(2):  # the second press is the same press
        answer = at_once(instrument.post, f"{begun}/observe", json=body, headers=HURRIED).json()
        assert answer["stored"]["y"] == [60.0]
    assert [event.kind for event in hub.store.events(1)][:2] == ["proposed", "observed"]
    assert len([e for e in hub.store.events(1) if e.kind == "observed"]) == 1
    held.go()
    # Judged as soon as it can be: it would have been asked back.
    (sentence,) = [w for w in hub.knowledge(1).warnings if "improbable" in w]
    assert sentence.startswith("Step 1: response 60 is improbable")
    assert "correct or undo it" in sentence
    instrument.post(f"{begun}/correct", json={"step": 1, "y": "0.5"})
    assert not any("improbable" in w for w in hub.knowledge(1).warnings)


def test_once_the_posterior_is_in_view_the_improbable_is_asked_back(instrument, begun, hub):
    proposal = instrument.get(begun).json()["next"]["id"]
    body = {"y": "60", "proposal": proposal, "ask": True}
    hub.knowledge(1)
    answer = instrument.post(f"{begun}/observe", json=body, headers=HURRIED)
    assert (answer.status_code, answer.json()["improbable"]) == (409, True)


def test_an_outcome_is_stored_and_answered_while_the_policy_compiles(instrument, begun, hub, held):
    """`_update` is what the second design needs and the first does not."""
    held.hold(policy_runner, "_update")
    proposal = instrument.get(begun).json()["next"]["id"]
    body = {"y": 0.5, "proposal": proposal}
    answer = at_once(instrument.post, f"{begun}/observe", json=body, headers=HURRIED).json()
    assert answer["stored"]["y"] == [0.5]
    assert (answer["finding"], answer["next"]) == (True, None)
    # Others may act meanwhile, too.
    note = at_once(instrument.post, f"{begun}/note", json={"text": "waits"}, headers=HURRIED)
    assert note.json()["finding"]
    page = at_once(instrument.get, "/experiments/1").text
    assert "Finding the design of step 2" in page
    assert '<noscript><meta http-equiv="refresh"' in page
    held.go()
    following = instrument.get(begun).json()
    assert (following["finding"], following["next"]["step"]) == (False, 2)
    assert len([e for e in hub.store.events(1) if e.kind == "proposed"]) == 2
    assert "http-equiv" not in instrument.get("/experiments/1").text


def test_python_stores_an_outcome_while_another_thread_finds_a_design(run, tmp_path, held):
    with Session.create(run, db=tmp_path / "live.sqlite", seed=3) as session:
        session.propose()
        held.hold(policy_runner, "_update")
        session.observe(0.5)
        searching = threading.Thread(target=session.propose)
        searching.start()
        assert held.reached.wait(PATIENCE)
        at_once(session.note, "stored all the same")
        held.go()
        searching.join(PATIENCE)
        assert session.state.proposal.step == 2
        assert session.state.notes[0].text == "stored all the same"


def test_a_policy_that_fails_in_the_background_says_so_on_the_page(instrument, begun, monkeypatch):
    from scorebed.errors import ScorebedError

    def none(_, state):
        raise ScorebedError(f"the design of step {state.step}, got none, expected one. Fix: none.")

    proposal = instrument.get(begun).json()["next"]["id"]
    monkeypatch.setattr(Session, "_chosen", none)
    body = {"y": 0.5, "proposal": proposal}
    answer = instrument.post(f"{begun}/observe", json=body, headers=HURRIED)
    assert answer.json()["stored"]["step"] == 1
    for _ in range(50):  # until the search has ended
        page = instrument.get("/experiments/1").text
        if "Finding" not in page:
            break
    assert "the design of step 2, got none" in page


@contextlib.contextmanager
def serving(run, db, monkeypatch):
    """`scorebed serve` in this process, so that its programs can be held; gives the link."""
    made, ready, links = [], threading.Event(), []

    class Kept(server.uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            made.append(self)

    def on_ready(link, _):
        links.append(link)
        ready.set()

    monkeypatch.setattr(server.uvicorn, "Server", Kept)
    options = {"host": "127.0.0.1", "port": 0, "db": db, "on_ready": on_ready}
    thread = threading.Thread(target=lambda: server.serve(run, **options), daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield links[0]
    finally:
        for each in made:
            each.should_exit = True
        thread.join(PATIENCE)


@pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason=f"browser tests need {CHROMIUM}: apt install chromium"
)
def test_a_browser_enters_the_first_outcomes_of_a_cold_server_on_a_busy_machine(
    run, tmp_path, held, monkeypatch, busy_cores
):
    """The link is printed while nothing of the posterior is compiled; the first outcome is seen to
    be stored before anything is. The second finds the policy held, too.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    expect = sync_api.expect
    hold_posteriors(held)
    policy = Held(monkeypatch)
    with serving(run, tmp_path / "live.sqlite", monkeypatch) as link:
        assert held.reached.wait(PATIENCE)
        policy.hold(policy_runner, "_update")
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, chromium_sandbox=False, args=["--disable-gpu"]
            )
            window = browser.new_page()
            window.set_default_timeout(1000 * PATIENCE)
            expect.set_options(timeout=1000 * PATIENCE)
            window.goto(link)
            with busy_cores():
                window.get_by_label("Name").fill("cold")
                window.get_by_role("button", name="Begin").click()
                window.locator("#y-0").fill("0.5")
                window.get_by_role("button", name="Store").dblclick()
                expect(window.locator("#said")).to_contain_text("Stored: step 1")
                expect(window.locator("#history tbody tr")).to_have_count(1)
                expect(window.locator("#now-title")).to_have_text("Finding the design of step 2 …")
            expect(window.locator("#knowledge")).to_contain_text("Computing")
            assert not held._go.is_set()
            assert not policy._go.is_set()
            # The design comes by itself, then what is known.
            policy.go()
            expect(window.locator("#now-title")).to_have_text("Step 2 of 3: measure at")
            expect(window.locator("#said")).to_contain_text("Stored: step 1. Step 2 of 3")
            expect(window.locator("#y-0")).to_be_focused()
            expect(window.locator("#knowledge")).to_contain_text("Computing")
            held.go()
            expect(window.locator("#knowledge")).to_contain_text("nats gained")
            browser.close()
