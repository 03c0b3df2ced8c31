"""docs/reliability.md, from the records."""

from chaos.parts import RECORDS, PartRecord
from chaos.table import PARTS
from scorebed.runs.durable import replace_file

PAGE = RECORDS.parent / "reliability.md"
SECTION = "## Figures"

ABOUT = """# What happens when things go wrong

The promise: no acknowledged result or measurement is lost; a wrong input gets one clear line; a
file runs no code. `make chaos` tries it out, in numbers:

    make chaos                      # what is left of every part, then this page
    python -m chaos server          # one part
    python -m chaos --again damage  # a part from its beginning
    python -m chaos --minutes 10    # begin no further piece after ten minutes

A part is carried out piece by piece, from seeds that follow from the number of the piece; every
finished piece is added to `docs/reliability/PART.json`. Servers listen on 127.0.0.1 alone and every
wait has an end. A few cases of every part are tests.

"""

FOUND = """
## What was found on the way

All are repaired; most have a test of their own, and the first two are what `damage` looks for.

- A bit that flipped in the arrays of a policy or score, in a JSON file, in `config.toml`, in a
  line of metrics or of a study's journal, or in an event of an experiment went unseen and was used.
  All of these hold checksums now ([decision 043](decisions/043-checksums.md)); files of earlier
  versions have none and load as before.
- SQLite drops a damaged entry of its log with all that follow it, and says nothing. The log is
  looked at before SQLite recovers from it: lost entries are a refusal, a torn last one a warning.
- The end of `metrics.jsonl` or of a study's journal could be missing without a word. Half a line
  at the end is a warning now.
- A run that was killed between timing its bounds and keeping them had that line of its curves
  twice.
- `--dask-tls-cert` and its siblings were ignored without `--dask`, an empty `--method` and names
  that are no FILE.py:NAME where a run's own parts are named.
- `--workers 1e5`, `--repeats 1e9` and `evaluate --inner 1e11` were begun. What no machine gets
  through in a day, or what does not fit the memory, is refused; `--long` begins all the same.

- In some lives of the killed server no client had a first answer within two minutes. It was the
  script's fault: commands say their link in a file whose name comes again, and on a busy machine
  its clients read the link of a server that had been killed. Of 500 servers whose own link is read
  all answer; a life without a first answer is a broken promise now.
- An outcome whose square is infinite in single precision (from about 10¹⁹ on) was the end of the
  posterior for all later steps of its experiment: 84 of 599. Where steps are independent it is left
  out now, and the posterior of the others says so.

## Acknowledged at once

    python benchmarks/acknowledged.py --busy 0 --servers 2 --outcomes 6

One second after the link of a cold server is printed an experiment is begun, and outcomes are
entered as soon as their designs are there, while the rest compiles. By the clock on the wall, on
two cores with a load of 20, the first outcomes of two servers were acknowledged after 127 and 283
ms, all twelve after 122 ms in the median: 11 of 12 within the goal of 200 ms
([record](reliability/acknowledged.json)).

A browser does the same (`pytest -m slow tests/web/test_web_browser.py -k one_second`): it opens the
link of a cold server while two processes keep both cores busy, begins an experiment, and enters its
first outcome no sooner than a second after the link. With nothing else on the two cores it was
entered after 1.0 s, acknowledged 36 ms later, and seen on the page after 0.12 s. On a machine whose
load was 11 besides, the page was ready 5.6 s after the link; the outcome was acknowledged after 199
ms and seen after 0.81 s.

With two busy processes and little else (`--servers 2 --outcomes 6`; servers and busy processes
pinned to one and the same core, load 3.4) all twelve outcomes were acknowledged within 38 ms, the
first of the two servers after 36 and 27 ms.

## Many experiments, and long ones

With 10,000 experiments of two events in one file the list takes 0.40 s of processor time (2.3 MB of
HTML), one of them 0.23 s, and `/api/experiments` 0.13 s; reading the file for the first time, 0.8
s, is done before the link is printed. An experiment of 10,000 steps takes 0.39 s a page (3.8 MB);
the first time after 10,000 steps came at once it was 2.0 s.

## What this does not show

- Kills of a process leave the page cache as it is; a power failure does not. What is promised
  after one rests on the order of fsync and rename, which is tested call by call.
- The disk is made full by failing calls (a run) and by a limit on pages (a session), not by a real
  device.
- A file cut exactly at the end of a line or of an entry of a log is the file as it was earlier:
  nothing in it can tell.
- The last entry of SQLite's log alone, damaged, cannot be told from one that a power failure cut
  short: it is a warning that asks to look, not a refusal.
- The writes of a run that fail are every ninth of what each life has left, not all of one life.
- Two cases that no part tries: hardware that lies about fsync, and network file systems.
"""


def page() -> str:
    """The text."""
    rows = [
        "| part | what | tried | of | promise | broken | CPU s |",
        "|---|---|--:|--:|---|--:|--:|",
    ]
    details = []
    for part in PARTS.values():
        record = PartRecord.read(part.name)
        tried = record.counts.get(part.counted, 0)
        whole = f"{part.pieces * part.cases:,}" if part.cases else "all"
        if part.name == "disk":
            whole = "see below"
        if part.name == "damage":
            whole = f"{part.pieces * part.cases * 6 // 5:,}"
        rows.append(
            f"| `{part.name}` | {part.title} | {tried:,} {part.counted} | {whole} | {part.promise} "
            f"| {record.broken} | {record.cpu_seconds:,.0f} |"
        )
        counts = ", ".join(f"{name} {count:,}" for name, count in record.counts.items())
        if record.pieces:
            details.append(f"- `{part.name}` ({record.pieces} of {part.pieces} pieces): {counts}.")
        details += [f"  - broken: {fault}" for fault in record.faults]
    figures = f"{SECTION}\n\n" + "\n".join(rows) + "\n\n" + "\n".join(details) + "\n"
    return ABOUT + figures + FOUND


def write_page() -> None:
    """Put it in its place."""
    replace_file(PAGE, page().encode())
