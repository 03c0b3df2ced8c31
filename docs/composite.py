"""Draw the picture at the top of README.md: python docs/composite.py RUN [FILE].

RUN is a finished run of location finding that looks ahead; `make demo` leaves one in demo/. Above,
an experiment by its policy beside one with random designs, of the same sources and with the same
noise: the path of the sensor, and where the particles of the posterior have the sources. Below, the
page of `scorebed serve RUN` in the middle of an experiment, photographed by Debian's chromium.
"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import matplotlib.image
import numpy as np
from matplotlib.figure import Figure
from playwright.sync_api import sync_playwright

import scorebed as sb
from scorebed.inference.resample_move import thetas_of
from scorebed.samplers.paper import reference_sampler

IMAGE = pathlib.Path(__file__).parent / "images" / "readme.png"
CHROMIUM = {
    "executable_path": "/usr/bin/chromium",
    "headless": True,
    "chromium_sandbox": False,
    "args": ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
}
SEED, SHOWN, ENTERED = 3, (5, 15, 30), 12
PATIENCE = 1_200_000  # milliseconds; what the next steps will tell takes a minute of processor time
DPI = 100


def experiments(task, policy):
    """Sources, and of the policy's and of random designs: places of the sensor and particles."""
    theta = task.prior.sample(key=jr.key(SEED))
    noise = jr.normal(jr.key(SEED + 1), (task.horizon, task.outcome_dim))
    sampler, _ = reference_sampler(task)
    anywhere = sampler.sample(key=jr.key(SEED + 2))
    design, update = eqx.filter_jit(policy.design), eqx.filter_jit(policy.update)
    outcome = eqx.filter_jit(task.outcome)

    def play(choose):
        memory, xis, clouds = policy.init(), [], []
        for step in range(task.horizon):
            xi = choose(memory, step)
            memory = update(memory, xi, outcome(theta, None, xi, noise[step]))
            xis.append(np.asarray(xi))
            clouds.append(np.asarray(thetas_of(task, memory.cloud.z)).reshape(2, 2, -1))
        return np.stack(xis), clouds

    nothing = jnp.zeros(0)
    by_policy = play(lambda memory, _: design(memory, nothing))
    return np.asarray(theta).reshape(2, 2), by_policy, play(lambda _, step: anywhere[step])


def draw_experiments(figure, sources, by_policy, at_random):
    """A row for each kind of designs, a column for each step of `SHOWN`."""
    panels = figure.subplots(2, len(SHOWN), sharex=True, sharey=True)
    titles = ("the default policy", "random designs")
    for row, title, (xis, clouds) in zip(panels, titles, (by_policy, at_random), strict=True):
        row[0].set_ylabel(title, fontsize=12)
        for axes, step in zip(row, SHOWN, strict=True):
            for cloud, colour in zip(clouds[step - 1], ("tab:blue", "tab:orange"), strict=True):
                axes.scatter(*cloud, s=5, alpha=0.25, color=colour, linewidths=0)
            axes.plot(*xis[:step].T, ".-", color="0.25", linewidth=0.5, markersize=4)
            axes.plot(*sources.T, "rx", markersize=9, markeredgewidth=2)
            axes.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal", xticks=[], yticks=[])
    for axes, step in zip(panels[0], SHOWN, strict=True):
        axes.set_title(f"after {step} measurements", fontsize=11)


def photograph(run, sources, folder):
    """The page of an experiment on the same sources, after `ENTERED` measurements."""
    db = folder / "live.sqlite"
    dice = np.random.default_rng(SEED)
    task, theta = run.task, jnp.asarray(sources.ravel())
    with sb.Session.open(run, db=db, experiment="two sources", seed=SEED) as session:
        for _ in range(ENTERED):
            xi = jnp.asarray(session.propose().design)
            y = task.outcome(theta, None, xi, jnp.asarray(dice.normal(size=1)))
            session.observe(round(float(y[0]), 2))
        session.propose()
    main_of = "from scorebed.cli import main; main()"
    command = [sys.executable, "-c", main_of, "serve", str(run.path)]
    command += ["--port", "0", "--db", str(db), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            link = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["link"]
            with sync_playwright() as playwright:
                window = playwright.chromium.launch(**CHROMIUM).new_page(
                    viewport={"width": 1180, "height": 760}
                )
                window.goto(link)
                with contextlib.suppress(Exception):  # where the page begins with a list
                    window.get_by_text("two sources").first.click(timeout=3_000)
                window.wait_for_selector("#y-0")
                for known in ("#knowledge .big", "#pictures .space svg"):
                    window.wait_for_selector(known, timeout=PATIENCE)
                return matplotlib.image.imread(io.BytesIO(window.screenshot()))
        finally:
            server.terminate()


def main(path, image=IMAGE):
    """One picture of all three."""
    run = sb.load(path)
    sources, by_policy, at_random = experiments(run.task, run.policy)
    with tempfile.TemporaryDirectory() as folder:
        page = photograph(run, sources, pathlib.Path(folder))
    figure = Figure(figsize=(9, 11.8), layout="constrained", dpi=DPI)
    above, below = figure.subfigures(2, 1, height_ratios=(6.1, 5.7))
    draw_experiments(above, sources, by_policy, at_random)
    axes = below.subplots()
    axes.imshow(page, interpolation="lanczos")
    axes.set(xticks=[], yticks=[])
    axes.set_title("the same at the bench: scorebed serve RUN", fontsize=11)
    figure.savefig(image, metadata={"Software": None}, pil_kwargs={"optimize": True})
    print(image)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
