"""The site is built without warnings and has a page for every public name; its notebooks run."""

import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types
from xml.etree import ElementTree

import pytest

import scorebed as sb
from test_docs import ROOT, blocks, name_of

DOCS = ROOT / "docs"
NOTEBOOKS = [
    page for page in sorted((DOCS / "tutorials").glob("*.md")) if page.read_text()[:4] == "---\n"
]
TUTORIALS = ("blood", "nuisance", "pendulum", "searching", "two-sources")


def build(to: pathlib.Path, *options: str, notebooks: str, builder: str = "html") -> None:
    """Build the site; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", builder, *options]
    done = subprocess.run(
        [*command, "-d", str(to / "doctrees"), str(DOCS), str(to / "pages")],
        env=os.environ | {"SCOREBED_NOTEBOOKS": notebooks},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    """All pages, without the outputs of notebooks, built by the first worker that asks for them."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build(folder, notebooks="off")
            (folder / "built").touch()
    return folder / "pages"


def test_the_site_is_built_without_a_warning(site):
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    sources = {str(p.relative_to(DOCS).with_suffix(".html")) for p in DOCS.rglob("*.md")}
    built = {page for page in sources if not page.startswith("_build")}
    assert built <= pages
    assert {"search.html", "genindex.html"} <= pages


def test_links_within_the_site_lead_somewhere(site):
    """Pages, downloads and headings, as a browser would follow them."""
    broken = []
    names: dict[pathlib.Path, set[str]] = {}
    for path in site.rglob("*.html"):
        text = path.read_text()
        names[path.resolve()] = set(re.findall(r'\bid="([^"]+)"', text))
    for path in names:
        for link in re.findall(r'(?:href|src)="([^"]+)"', path.read_text()):
            if re.match(r"https?:|data:|mailto:", link):
                continue
            file, _, anchor = link.partition("#")
            file = file.split("?")[0]
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and anchor not in names.get(target, {anchor})):
                broken.append(f"{path.relative_to(site.resolve())}: {link}")
    assert broken == []


def loaded_from_elsewhere(page: str) -> list[str]:
    return re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="\s*(http[^"]+)"', page)


def test_pages_load_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        assert loaded_from_elsewhere(path.read_text()) == [], path


def test_the_search_knows_words_and_names(site):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert "nuisanc" in index["terms"]  # stems of words
    assert "api/bounds" in index["docnames"]


def test_formulas_are_formulas(site):
    page = (site / "how-it-works.html").read_text()
    assert page.count("<math") >= 8
    assert "$$" not in page
    assert (site / "_static" / "stix-two-math.woff2").is_file()
    parts = {"mfrac": 2, "mover": 2, "msub": 2, "msup": 2, "msubsup": 3, "munderover": 3}
    for name in ("how-it-works", "tasks"):
        for formula in re.findall(r"<math.*?</math>", (site / f"{name}.html").read_text()):
            for element in ElementTree.fromstring(formula).iter():
                kind = element.tag.partition("}")[2]
                assert len(element) == parts.get(kind, len(element)), formula


def test_every_public_name_is_in_the_reference(site):
    text = "\n".join(
        (site / "api" / f"{p.stem}.html").read_text() for p in (DOCS / "api").glob("*.md")
    )
    listed = re.findall(r'<dt class="sig sig-object py" id="scorebed\.(\w+)">', text)
    assert sorted(listed) == sorted(sb.__all__)


def test_types_have_the_names_that_users_import(site):
    text = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    assert "jaxlib" not in text
    assert "PRNGKeyArray" in re.sub("<[^>]*>", "", text)
    assert "UInt32" not in text


def test_examples_are_shown_as_they_are(site):
    text = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    assert "__call__" in text
    assert "\\_" not in text


def test_there_are_five_notebooks():
    assert tuple(page.stem for page in NOTEBOOKS) == TUTORIALS


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_in_two_minutes_and_ends_in_a_picture(page, monkeypatch, tmp_path):
    """In processor time on one core, compilation included."""
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    module = types.ModuleType(f"notebook_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    begun = time.process_time()
    cells = blocks(page.read_text(), r"\{code-cell\}")
    for line, cell in cells:
        code = re.sub(r"^:tags:.*$", "", cell, flags=re.MULTILINE)
        exec(compile("\n" * line + code, str(page), "exec"), module.__dict__)
    assert time.process_time() - begun < 240  # two cores for two minutes
    assert "hide-input" in cells[-1][1]
    pictures = len(pyplot.get_fignums())
    pyplot.close("all")
    assert pictures == 1 or "to_jshtml" in cells[-1][1]


@pytest.mark.slow
def test_the_whole_site_is_built_with_its_notebooks(tmp_path):
    cache = f"nb_execution_cache_path={tmp_path / 'notebooks'}"
    build(tmp_path, "-D", cache, notebooks="cache")
    pages = {name: tmp_path / "pages" / "tutorials" / f"{name}.html" for name in TUTORIALS}
    for name, page in pages.items():
        text = page.read_text()
        assert loaded_from_elsewhere(text) == []
        assert "Animation(" in text if name == "two-sources" else 'class="cell_output' in text
        picture = r'<img[^>]*src="(?:\.\./_images/[0-9a-f]+\.png|data:image/png)'
        assert re.search(picture, text) or name == "two-sources", name


@pytest.mark.slow
@pytest.mark.network
def test_links_to_other_sites_lead_somewhere(tmp_path):
    build(tmp_path, notebooks="off", builder="linkcheck")
