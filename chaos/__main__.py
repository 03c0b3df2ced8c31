"""`python -m chaos [PART …]`: what is left of the parts, and the page from their records."""

import argparse
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos.page import write_page
from chaos.parts import RECORDS, carry_out
from chaos.table import PARTS


def main() -> int:
    """The exit code: 1 if any promise was broken in what was carried out."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all if left out")
    parser.add_argument("--again", action="store_true", help="forget the records of these parts")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no piece after them")
    parser.add_argument("--work", type=Path, help="keep files here; a temporary folder if left out")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where records are kept")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    work = given.work or Path(tempfile.mkdtemp(prefix="scorebed-chaos-"))
    broken = 0
    try:
        for name in given.parts or PARTS:
            if given.again:
                (given.records / f"{name}.json").unlink(missing_ok=True)
            done = carry_out(
                PARTS[name],
                work.resolve() / name,
                until=until,
                folder=given.records,
                say=lambda line: print(line, flush=True),
            )
            broken += done.broken
    finally:
        if given.work is None:
            shutil.rmtree(work, ignore_errors=True)
    if given.records == RECORDS:
        write_page()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
