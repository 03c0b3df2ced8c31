# make setup | demo | test | test-slow | learns | lint | types | bench | chaos | docs | site | links | lock. Each sets up what it needs, in .venv beside this file.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
APT := timeout 300 apt-get install -qq -y chromium

.PHONY: setup demo browser test test-slow learns lint types bench chaos docs site links lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

# Stopped by Ctrl-C, it goes on where it was; `rm -r demo` starts anew.
demo: setup
	if test -d demo; then $(BIN)/scorebed resume demo; else $(BIN)/scorebed train location-finding --preset quick --out demo; fi

# Chromium for the tests of the web page, where it may be installed; elsewhere those tests are skipped.
browser:
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && { $(APT) || { timeout 60 apt-get update -qq && $(APT); }; } >/dev/null 2>&1; } || \
	  echo "No chromium: the tests in a browser will be skipped. To have them: apt install chromium"

# A test that waits in Python fails after its deadline. One that waits inside of XLA, where Python can
# interrupt nothing, says where a minute later and ends its worker, which is replaced.
DEADLINE = --timeout $(1) -o faulthandler_timeout=$(2) -o faulthandler_exit_on_timeout=true

test: setup browser lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal $(call DEADLINE,300,360)

test-slow: setup
	$(BIN)/python -m pytest -m "slow and not network" $(call DEADLINE,3600,3660)

# Does the paper's network learn? Slow tests of a small version of it, and of the frequencies of its text.
learns: setup
	$(BIN)/python -m pytest -m "slow or not slow" tests/scores/test_transformer_learns.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

bench: setup
	for script in likelihood_kernels bounds steps startup restarts memory costs live minutes accelerator scaling paired two_steps acknowledged; do $(BIN)/python benchmarks/$$script.py || exit; done

# Kills, damaged files, full disks, races, strangers, nonsense: what is left of it. Records and page in docs/reliability.
chaos: setup
	$(BIN)/python -m chaos

docs: setup
	$(BIN)/python docs/render.py

# The site, in docs/_build/html, offline and without warnings. Notebooks that have not changed keep their outputs.
site: setup
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs docs/_build/html

# Links to other sites; needs the network.
links: setup
	SCOREBED_NOTEBOOKS=off $(BIN)/python -m sphinx -q -b linkcheck docs docs/_build/links

# A lock with hashes and no host names; needs uv (pip install uv).
lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header \
	  --quiet --upgrade --output-file requirements.lock

clean:
	rm -rf .venv
