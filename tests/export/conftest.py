"""The tests of this folder borrow the runs of live experiments, which nobody had to train."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "session"))  # for live_runs
