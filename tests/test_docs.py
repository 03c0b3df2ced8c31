"""What is written is true: examples run, links lead somewhere, tables say what the code says."""

import ast
import importlib.util
import pathlib
import re
import sys
import types

import pytest

import scorebed as sb
from scorebed.cli._app import COMMANDS
from scorebed.presets.reader import policy_for
from scorebed.samplers.mixture import SamplerMixture
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.base import IID, Markov
from scorebed.tasks.spaces import Box

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in p.parts),
]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
TASK_PAGE = (ROOT / "docs" / "tasks.md").read_text()


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """Fenced blocks of one language, with the line on which their content starts."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_blocks(text))


def anchors(text: str) -> set[str]:
    """The names that headings get on the page: lower case, punctuation gone, hyphens for spaces."""
    titles = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# ---- examples


WITH_EXAMPLES = [page for page in PAGES if blocks(page.read_text(), "python")]
# Tutorials train, if only for a few steps.
EXAMPLES = [
    pytest.param(page, marks=pytest.mark.slow if page.parent.name == "tutorials" else ())
    for page in WITH_EXAMPLES
]


@pytest.mark.parametrize("page", EXAMPLES, ids=[name_of(page) for page in WITH_EXAMPLES])
def test_examples_run_in_the_order_of_the_page(page, monkeypatch, tmp_path):
    module = types.ModuleType(f"example_{page.stem.lower()}")
    monkeypatch.setitem(
        sys.modules, module.__name__, module
    )  # where dataclasses look for a class's own module
    monkeypatch.chdir(tmp_path)
    for line, block in blocks(page.read_text(), "python"):
        # Padded with empty lines, so that a failure names the line of the page.
        exec(compile("\n" * line + block, str(page), "exec"), module.__dict__)


def test_readme_and_contributing_have_examples():
    assert len(blocks((ROOT / "README.md").read_text(), "python")) >= 1
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(
        name in contributing
        for name in ("(IID, Gaussian)", "(EulerMaruyama)", "(Policy)", "def estimate(")
    )


@pytest.mark.slow
def test_the_demo_runs(monkeypatch, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location(
        "first_rollout", ROOT / "examples" / "first_rollout.py"
    )
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "EXPERIMENTS", 3)
    monkeypatch.setattr(example, "DRAWS", 500)
    example.main(tmp_path, ("gravimetry",))
    assert (tmp_path / "random-gravimetry.png").stat().st_size > 10_000
    assert "30,000 likelihood evaluations" in capsys.readouterr().out


# ---- names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_lead_somewhere(page):
    for link in links(page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target.read_text()), (
            f"{name_of(page)}: no heading for {link}"
        )


def test_every_picture_is_shown_and_drawn_by_the_docs():
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in links(page.read_text())
        if link.endswith(".png")
    }
    reproduced = set((ROOT / "docs" / "reproduction").glob("*.png"))
    assert reproduced <= shown
    there = {path.name for path in (ROOT / "docs" / "images").iterdir()}
    drawn = (
        {f"task-{name}.png" for name in (*TASKS, "gravimetry-plane")}
        | {"overview.png", "score.png", "readme.png", "costs.png", "laptop.png"}
        | {f"compare-{name}.png" for name in ("pendulum", "pendulum-minutes", "location-finding")}
    )
    assert {path.name for path in shown - reproduced} == there == drawn


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_and_commands_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(
        [
            *(block for _, block in blocks(text, "sh")),
            *re.findall(r"`([^`\n]+)`", without_blocks(text)),
        ]
    )
    assert set(re.findall(r"^make ([\w-]+)", code, re.MULTILINE)) <= targets
    assert set(re.findall(r"^scorebed ([a-z]+)", code, re.MULTILINE)) <= set(COMMANDS)
    assert set(re.findall(r"\bsb\.(\w+)", text)) <= set(dir(sb))
    assert set(re.findall(r"\bsb\.(\w+)", text)) <= set(sb.__dir__())


def test_the_readme_gives_the_two_commands():
    (_, commands), *_ = blocks((ROOT / "README.md").read_text(), "sh")
    assert re.findall(r"^make (\w+)", commands, re.MULTILINE) == ["demo", "test"]


def test_the_readme_is_short_and_its_picture_light():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80
    assert (ROOT / "docs" / "images" / "readme.png").stat().st_size < 500_000


def test_the_layers_are_those_of_the_layering_test():
    tree = ast.parse((ROOT / "tests" / "test_layering.py").read_text())
    assigned = {
        node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)
    }
    order = [name for layer in ast.literal_eval(assigned["LAYERS"]) for name in layer]
    ((_, block),) = blocks((ROOT / "CONTRIBUTING.md").read_text(), "layers")
    written = re.findall(r"\w+", block)
    assert written == sorted(written, key=order.index)


# ---- tasks


def section(name: str) -> str:
    """From the heading of a task to the next heading."""
    start = re.search(rf"^#+ `{re.escape(name)}`$", TASK_PAGE, re.MULTILINE)
    assert start, f"docs/tasks.md has no section on {name}"
    return re.split(r"^#+ ", TASK_PAGE[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """Cells of the table rows of a text, headings and rulers included."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_the_table_of_dimensions_is_that_of_the_tasks():
    table = rows(TASK_PAGE.split("\n## ")[0])
    written = {re.search("`(.*)`", row[0])[1]: row[1:] for row in table[2:]}
    tasks = {name: make_task(name) for name in TASKS}
    truth = {
        name: [
            "iid" if isinstance(task, IID) else "markov" if isinstance(task, Markov) else "history",
            *map(str, (task.horizon, task.prior.dim, task.designs.dim, task.outcome_dim)),
        ]
        for name, task in tasks.items()
    }
    assert written == truth
    assert list(written) == list(TASKS)
    assert all(task.additive_noise for task in tasks.values()), (
        "docs/tasks.md says that all have additive noise"
    )


@pytest.mark.parametrize("name", TASKS)
def test_quantities_have_the_names_units_and_limits_of_the_code(name):
    task = make_task(name)
    table = [row for row in rows(section(name)) if row[0] in ("θ", "ξ", "y")]
    for symbol, quantities in (
        ("θ", task.prior.quantities),
        ("ξ", task.designs.quantities),
        ("y", task.outcomes),
    ):
        mine = [row for row in table if row[0] == symbol]
        truth = [(q.name, q.unit or "–") for q in quantities]
        if len(mine) == 1 and " … " in mine[0][1]:  # a range of names stands for all of them
            mine = [[symbol, end, mine[0][2]] for end in mine[0][1].split(" … ")]
            truth = [truth[0], truth[-1]]
        assert [(row[1], row[2]) for row in mine] == truth
    if isinstance(task.designs, Box):
        limits = [
            f"{low:g} to {high:g}"
            for low, high in zip(task.designs.low, task.designs.high, strict=True)
        ]
    else:
        limits = [f"unbounded, scale {task.designs.scale:g}"] * task.designs.dim
    assert [row[3].replace("−", "-") for row in table if row[0] == "ξ"] == limits


@pytest.mark.parametrize("name", TASKS)
def test_sampler_and_policy_are_those_of_the_code(name):
    task, text = make_task(name), section(name)
    sampler = sb.paper_sampler(task)
    parts = (sampler, *sampler.components) if isinstance(sampler, SamplerMixture) else (sampler,)
    assert all(f"`{type(part).__name__}`" in text for part in parts)
    assert f"Policy: `{policy_for('paper', task)}`" in text
    assert policy_for("paper", task) in sb.POLICIES


# ---- the rest


def test_decisions_are_numbered_listed_and_say_what_was_rejected():
    assert [page.name[:3] for page in DECISIONS] == [
        f"{i:03}" for i in range(1, len(DECISIONS) + 1)
    ]
    listed = links((ROOT / "docs" / "decisions" / "README.md").read_text())
    assert listed == [page.name for page in DECISIONS]
    for page in DECISIONS:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:3]} · "), page
        assert "rejected" in text.lower(), page


def test_the_changelog_keeps_a_list_of_changed_numbers():
    versions = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert versions
    assert all("### Numbers changed" in version for version in versions)


# Folders of somebody's machine. Taken apart, so that this file does not hold what it looks for.
MACHINE = re.compile(
    r"(?<![\w.~>])/(?:{})/[\w.]".format(
        "|".join(("home", "work", "tmp", "root", "farm", "Users", "mnt"))
    )
)


def test_no_path_of_a_machine_is_in_any_text():
    folders = (".ci", "benchmarks", "docs", "examples", "src", "tests")
    files = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    texts = [
        path
        for path in files
        if path.is_file()
        and not {"__pycache__", "_build"} & {*path.parts}
        and path.suffix != ".png"
    ]
    assert len(texts) > 50
    for path in texts:
        found = MACHINE.search(path.read_text(errors="replace"))  # of binary files too
        assert not found, f"{name_of(path)} holds {found[0]}"


def test_the_search_for_paths_finds_one():
    assert MACHINE.search("see " + "/".join(("", "home", "me", "file.py")))
    assert not MACHINE.search("docs/work/plan.md, https://example.org/home/index.html, a/tmp/b")
