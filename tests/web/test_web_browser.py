"""A person at the bench: a real browser, a real server, killed in the middle.

Needs Playwright and Debian's chromium (`apt install chromium`); the tests are skipped where either
is missing."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="browser tests need playwright: pip install 'scorebed[dev]'"
)

from live_runs import make_run  # noqa: E402

from scorebed.runs.load import load  # noqa: E402
from scorebed.session.posterior import Beliefs  # noqa: E402
from scorebed.session.session import Session  # noqa: E402

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000  # milliseconds: the first posterior compiles, and the machine may be busy

pytestmark = pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason=f"browser tests need {CHROMIUM}: apt install chromium"
)


class Server:
    """`scorebed serve` in a process of its own, on one port for all of its lives."""

    def __init__(self, folder: Path, db: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._command = [
            sys.executable,
            "-c",
            "from scorebed.cli import main; main()",
            "serve",
            str(folder),
            "--db",
            str(db),
            "--port",
            str(self.port),
            "--json",
        ]

    def start(self) -> dict[str, str]:
        self.process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline().decode()
            assert line, "the server ended before it was ready"
            text += line
        return json.loads(text)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def server(folder, tmp_path):
    made = Server(folder, tmp_path / "live.sqlite")
    yield made
    with contextlib.suppress(AttributeError, ProcessLookupError):
        made.kill()


@pytest.fixture
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, chromium_sandbox=False, args=ARGUMENTS
        )
        yield browser
        browser.close()


def watched(context, complaints):
    """A window whose complaints about script, policy or missing files are collected."""
    window = context.new_page()
    window.set_default_timeout(PATIENCE)
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.on(
        "console",
        lambda m: (
            complaints.append(m.text)
            if m.type == "error" and "status of 4" not in m.text and "net::ERR_" not in m.text
            else None
        ),
    )
    window.on(
        "request",
        lambda r: (
            None if r.url.startswith(("http://127.0.0.1:", "data:")) else complaints.append(r.url)
        ),
    )
    return window


# An experiment with two sources: where it is measured, and what is found there.
SOURCES = np.asarray([[0.5, -0.8], [-1.0, 1.0]])
DICE = np.random.default_rng(0)
PLACES = [
    *map(tuple, DICE.normal(size=(27, 2)).round(2).tolist()),
    (0.55, -0.8),
    (0.5, -0.75),
    (-1.02, 1.0),
]
OUTCOMES = [
    round(
        float(
            np.log(0.1 + (1 / (1e-4 + ((SOURCES - xi) ** 2).sum(1))).sum()) + 0.5 * DICE.normal()
        ),
        4,
    )
    for xi in PLACES
]


def enter(window, place, outcome):
    """Type an outcome and the place where it was measured."""
    window.locator("#other summary").press(
        "Enter"
    )  # a click would wait for a window in the background to be drawn
    for i, x in enumerate(place):
        window.locator(f"#xi-{i}").fill(str(x))
    window.locator("#y-0").fill(str(outcome))
    window.keyboard.press("Enter")


def test_a_whole_experiment_by_clicking_and_typing_with_a_witness_and_a_killed_server(
    chromium, tmp_path
):
    """Location finding, thirty steps, against a long run of the posterior. Sources are
    interchangeable, so what is compared does not depend on their order: the mean of their sum,
    coordinate by coordinate. The last outcome is the first one next to the second source: a
    posterior without it is off by three standard deviations. The tolerance is a fifth of one; two
    long runs differ by 0.04.
    """
    expect = sync_api.expect
    expect.set_options(timeout=PATIENCE)
    complaints: list[str] = []
    run, db = make_run(tmp_path / "run", "location-finding"), tmp_path / "live.sqlite"
    server = Server(run, db)
    try:
        link = server.start()["link"]
        context = chromium.new_context()
        me = watched(context, complaints)

        # The link opens the list, and the address keeps no token.
        me.goto(link)
        me.wait_for_url(f"http://127.0.0.1:{server.port}/")
        me.get_by_label("Name").fill("bench <b>")
        me.get_by_role("button", name="Begin").dblclick()
        expect(me.get_by_role("heading", level=1)).to_have_text("bench <b>")
        expect(me.locator("#now-title")).to_have_text("Step 1 of 30: measure at")
        first = me.locator("#now .big").all_inner_texts()

        # The field has the focus: type, and nothing bad gets in.
        expect(me.locator("#y-0")).to_be_focused()
        for bad in ("", "nan", "inf", "1e999", "1,5", "1 2", "abc"):
            me.locator("#y-0").fill(bad)
            me.keyboard.press("Enter")
            expect(me.locator("#entry-error")).to_contain_text("got")
            expect(me.locator("#y-0")).to_have_attribute("aria-invalid", "true")
            expect(me.locator("#y-0")).to_be_focused()
        expect(me.locator("#history")).to_contain_text("No step yet")

        # A double click stores one step, and a witness sees it without doing anything.
        witness = watched(context, complaints)
        witness.goto(me.url)
        expect(witness.locator("#now-title")).to_have_text("Step 1 of 30: measure at")
        expect(me.locator("#expect")).to_contain_text("Expected log intensity")
        me.locator("#y-0").fill("0.5")
        me.get_by_role("button", name="Store").dblclick()
        expect(me.locator("#now-title")).to_have_text("Step 2 of 30: measure at")
        expect(me.locator("#said")).to_contain_text("Stored: step 1. Step 2 of 30")
        expect(witness.locator("#now-title")).to_have_text("Step 2 of 30: measure at")
        expect(witness.locator("#history tbody tr")).to_have_count(1)
        expect(me.locator("#y-0")).to_be_focused()

        # Undo shows the first design again; then it is entered at another design.
        me.get_by_role("button", name="Undo step 1").click()
        expect(me.locator("#now-title")).to_have_text("Step 1 of 30: measure at")
        assert me.locator("#now .big").all_inner_texts() == first
        enter(me, PLACES[0], OUTCOMES[0])
        expect(me.locator("#history tbody tr")).to_contain_text([f"{PLACES[0][0]}"])
        expect(me.locator("#knowledge")).to_contain_text("source 1 x")
        expect(me.locator("#pictures svg").first).to_be_visible()

        # What if, by keyboard: the design that is told is the one that comes when the outcome does.
        me.locator("#what-if summary").focus()
        me.keyboard.press("Enter")
        expect(me.locator("#outlook tbody tr")).to_have_count(5)
        me.get_by_label("If the next log intensity were").fill("1.1")
        me.keyboard.press("Enter")
        expect(me.locator("#what-if-said")).to_contain_text(
            "Then the next design would be sensor x"
        )
        told = re.findall(r"[-−]?[0-9.]*[0-9]", me.locator("#what-if-said").inner_text())

        # Fewer steps, said what that means, and taken back.
        me.get_by_text("More or fewer steps").click()
        me.locator("#steps").fill("20")
        me.keyboard.press("Enter")
        expect(witness.locator("#now-title")).to_have_text("Step 2 of 20: measure at")
        expect(me.locator("#circumstances")).to_contain_text("has 20 steps")
        me.get_by_role("button", name="Undo the last change").click()
        expect(me.locator("#now-title")).to_have_text("Step 2 of 30: measure at")
        expect(me.locator("#circumstances")).to_be_empty()

        # What the server held is on the disk: killed and started anew, the same page goes on.
        second = me.locator("#now .big").all_inner_texts()
        server.kill()
        expect(me.locator("#offline")).to_be_visible()
        me.locator("#y-0").fill("60")
        me.keyboard.press("Enter")
        expect(me.locator("#entry-error")).to_contain_text("never stored twice")
        with me.expect_response(lambda r: r.url.endswith("/knowledge") and r.ok):
            server.start()  # and the posterior is in view again, by which outcomes are judged
        expect(me.locator("#offline")).to_be_hidden()
        assert me.locator("#now .big").all_inner_texts() == second
        assert me.locator("#y-0").input_value() == "60"

        # The improbable is asked back; first refused, then kept, then corrected.
        me.get_by_role("button", name="Store").click()
        expect(me.locator("#ask")).to_be_visible()
        expect(me.locator("#ask-text")).to_contain_text("Log intensity 60 is improbable")
        me.keyboard.press("Escape")
        expect(me.locator("#history tbody tr")).to_have_count(1)
        me.get_by_role("button", name="Store").click()
        me.get_by_role("button", name="Keep it").click()
        expect(me.locator("#history tbody tr")).to_have_count(2)
        me.get_by_role("button", name="Correct step 2").click()
        me.locator("#correct-y-0").fill("1,1")
        me.keyboard.press("Enter")
        expect(me.locator("#correct-error")).to_contain_text("comma")
        me.locator("#correct-y-0").fill("1.1")
        me.keyboard.press("Enter")
        expect(me.locator("#correct")).to_be_hidden()
        expect(me.locator("#now .big")).to_have_text(told)
        expect(witness.locator("#history tbody tr").first).to_contain_text("1.1")

        # On, step by step; the witness enters the last one, and both see the end.
        me.get_by_label("A remark").fill("<i>done</i>")
        me.keyboard.press("Enter")
        expect(witness.locator("#history")).to_contain_text("<i>done</i>")
        for step in range(3, 31):
            who = witness if step == 30 else me
            expect(who.locator("#now-title")).to_have_text(f"Step {step} of 30: measure at")
            enter(who, PLACES[step - 1], OUTCOMES[step - 1])
        expect(witness.locator("#now-title")).to_have_text("All 30 steps are taken")
        witness.get_by_role("button", name="Finish").click()
        expect(me.locator("#now-title")).to_have_text("Finished")
        expect(me.locator("#said")).to_contain_text("entered elsewhere")
        expect(me.locator("#knowledge")).to_contain_text("nats gained")
        expect(me.locator("#knowledge")).to_have_attribute(
            "data-key", me.locator("#now").get_attribute("data-sequence")
        )
        cells = [
            me.locator("#knowledge tbody tr").nth(row).locator("td").first.inner_text()
            for row in range(4)
        ]
        means = np.asarray([float(cell.replace("−", "-")) for cell in cells])
    finally:
        server.kill()

    with Session.open(load(run), db=db, experiment="bench <b>") as stored:
        records = stored.state.records
        assert [r.used for r in records if r.step != 2] == [
            p for step, p in enumerate(PLACES, start=1) if step != 2
        ]
        assert [r.y for r in records] == [
            (1.1 if step == 2 else y,) for step, y in enumerate(OUTCOMES, start=1)
        ]
        kinds = [event.kind for event in stored.history()]
        assert (kinds.count("observed"), kinds.count("undone"), kinds.count("corrected")) == (
            31,
            2,
            1,
        )
        assert len(stored._store.experiments()) == 1  # a double click began one
        long = (
            Beliefs(stored.task, seed=1, particles=8192)
            .posterior(records)
            .theta.reshape(-1, 2, 2)
            .sum(1)
        )
    assert np.all(np.abs(means.reshape(2, 2).sum(0) - long.mean(0)) < long.std(0) / 5)
    assert not complaints


@pytest.mark.slow
def test_the_page_needs_no_sideways_scrolling_and_every_field_has_a_name(server, chromium):
    complaints: list[str] = []
    link = server.start()["link"]
    for width in (320, 390, 820, 1400):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark"
        )
        window = watched(context, complaints)
        window.goto(link)
        window.wait_for_url(f"http://127.0.0.1:{server.port}/")
        window.get_by_label("Name").fill(f"width {width} " + "x" * 60)
        window.get_by_role("button", name="Begin").click()
        sync_api.expect(window.locator("#pictures svg").first).to_be_visible(timeout=PATIENCE)
        assert window.evaluate("document.documentElement.scrollWidth") <= width
        unnamed = (
            "Array.from(document.querySelectorAll('input')).filter((i) => !i.labels.length).length"
        )
        assert window.evaluate(unnamed) == 0
        big = window.evaluate(
            "parseFloat(getComputedStyle(document.querySelector('#now .big')).fontSize)"
        )
        largest = window.evaluate(
            "Math.max(...Array.from(document.querySelectorAll('body *'), (e) => "
            "parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert big == largest
        context.close()
    assert not complaints


@pytest.mark.slow
def test_the_first_outcome_is_acknowledged_one_second_after_the_link_on_busy_cores(
    chromium, tmp_path, busy_cores, capsys
):
    """Both cores compute something else from before the server starts, and what an experiment needs
    compiles as it does for everybody: an entry that waited for it would wait for ten seconds and
    more. The goal is 200 ms; a busy machine may take longer without having waited.
    """
    complaints: list[str] = []
    server = Server(make_run(tmp_path / "run", "location-finding"), tmp_path / "live.sqlite")
    expect = sync_api.expect
    expect.set_options(timeout=PATIENCE)
    window = watched(chromium.new_context(), complaints)
    with busy_cores():
        try:
            link = server.start()["link"]
            printed = time.monotonic()
            window.goto(link)
            window.get_by_label("Name").fill("cold")
            window.get_by_role("button", name="Begin").click()
            window.locator("#y-0").fill("0.5")
            time.sleep(max(0.0, printed + 1 - time.monotonic()))
            entered = time.monotonic() - printed
            with window.expect_response(lambda r: r.url.endswith("/observe")) as answered:
                window.get_by_role("button", name="Store").click()
            answered.value.finished()
            milliseconds = answered.value.request.timing["responseEnd"]
            expect(window.locator("#said")).to_contain_text("Stored: step 1")
            seen = time.monotonic() - printed - entered
            expect(window.locator("#history tbody tr")).to_have_count(1)
            said = window.locator("#now-title").inner_text()
        finally:
            server.kill()
    with capsys.disabled():
        print(  # noqa: T201
            f"\nentered {entered:.1f} s after the link, answered after {milliseconds:.0f} ms, seen "
            f"after {seen:.2f} s; then: {said}"
        )
    assert milliseconds < 2000
    assert not complaints
