"""Sweeps: many policies searched for on one score, by any number of workers. Needs the extra
`sweep`.

    create: score and space → study folder        work: ask → lease → run folder → tell
    status, best, report: what the study has found

Optuna holds the trials and suggests settings; every trial is an ordinary run folder. The package is
not called `sweep`, because `scorebed.sweep` is the function.
"""

from scorebed.errors import ScorebedError

try:
    import optuna as optuna
except ModuleNotFoundError as missing:
    raise ScorebedError(
        f"sweeps, got no package '{missing.name}', expected optuna. "
        "Fix: pip install 'scorebed[sweep]'."
    ) from missing
