"""The sizes of a run, by preset, task, method and number of policies: TOML files next to this one.

`general.toml` explains their headings; `reader.py` puts them together."""

from scorebed.presets.files import read

PRESETS: tuple[str, ...] = tuple(read("general")["presets"])
DEFAULT_PRESET = str(read("general")["default"]["preset"])
DEFAULT_METHOD = str(read("general")["default"]["method"])
BENCH_PRESET = str(read("general")["bench"])


def spends_all(preset: str) -> bool:
    """Whether a budget is to be used up, by more steps of a network than the preset has."""
    return preset in read("general")["spend_all"]
