"""The golden runs: which command lines are compared between two commits.

Runs are as small as they can be and still pass through every stage. Keys are given only to methods
that use them."""

from typing import NamedTuple

TASKS = ("linear-gaussian", "pendulum")  # one whose steps are independent, and one with a state

SCORE = ["score.width=8", "score.particles=2", "score.cloud=2", "score.steps=10", "score.batch=16"]
TRANSFORMER = [
    "score.width=16",
    "score.blocks=1",
    "score.heads=2",
    "score.steps=10",
    "score.batch=16",
]
LAPLACE = ["score.kind=laplace", "score.particles=2", "score.cloud=2", "score.iterations=4"]
POLICY = [
    "policy_training.steps=10",
    "policy_training.batch=16",
    "policy_training.monitor_every=5",
    "policy_training.monitor_inner=32",
]
BOUNDS = ["evaluation.outer=16", "evaluation.inner=200", "evaluation.tight_outer=0"]
ALONE = "evaluation.references=false"
MODES = ("--policy", "modes")
PLAN = ("--policy", "plan")
CHOICE = ["evaluation.select_outer=16", "evaluation.select_inner=50"]
CONTRASTIVE = [*POLICY, "policy_training.inner=7"]
DENSITY = ["density.width=8", "density.layers=1"]
MIXTURE = [*DENSITY, "density.heads=2", "density.components=2"]
UPFRONT = ["density.steps=10", "density.batch=16"]
NESTED = [
    "policy_training.steps=10",
    "policy_training.batch=4",
    "policy_training.monitor_every=5",
    "policy_training.monitor_inner=32",
    "iosmc.trajectories=8",
    "iosmc.particles=8",
]

METHODS: dict[str, list[str]] = {
    "score": [*SCORE, *POLICY, *BOUNDS, ALONE],
    "jointscore": [*SCORE, *POLICY, *BOUNDS, ALONE],
    "pce": [*CONTRASTIVE, *BOUNDS, ALONE],
    "nmc": [*CONTRASTIVE, *BOUNDS, ALONE],
    "mlmc": [*POLICY, "policy_training.base=2", "policy_training.levels=3", *BOUNDS, ALONE],
    "varmarg": [*DENSITY, "density.depth=1", *UPFRONT, *POLICY, *BOUNDS, ALONE],
    "varpost": [*MIXTURE, *UPFRONT, *POLICY, *BOUNDS, ALONE],
    "jointvarpost": [*MIXTURE, *POLICY, *BOUNDS, ALONE],
    "iosmc": [*NESTED, *BOUNDS, ALONE],
    "static": [*CONTRASTIVE, *BOUNDS, ALONE],
    "random": [*BOUNDS],
    "myopic": [
        "evaluation.outer=4",
        "evaluation.inner=50",
        "evaluation.tight_outer=0",
        ALONE,
    ],
}


class Train(NamedTuple):
    """`scorebed train TASK --method METHOD OPTIONS… --set SETTING…`; "{run NAME}" in an option is
    the folder of another run.
    """

    task: str
    method: str
    settings: list[str]
    options: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The words of the command line, but for `--out` and `--json`."""
        sets = [word for setting in self.settings for word in ("--set", setting)]
        return [
            "train",
            self.task,
            "--preset",
            "quick",
            "--method",
            self.method,
            *self.options,
            *sets,
        ]


def _method(task: str, method: str, *options: str) -> Train:
    gru = ("--policy", "gru") if method == "iosmc" else ()
    return Train(task, method, METHODS[method], (*gru, *options))


def _by_score(task: str, settings: list[str], *options: str) -> Train:
    return Train(task, "score", [*settings, *POLICY, *BOUNDS, ALONE], options)


def _trains() -> dict[str, Train]:
    found = {f"{task}/{method}": _method(task, method) for task in TASKS for method in METHODS}
    found["refused/iosmc"] = Train(
        "linear-gaussian", "iosmc", METHODS["iosmc"], ("--policy", "dad")
    )
    # Two sources, which may be exchanged; a void under a line; ten sources.
    found["location-finding/score"] = _method("location-finding", "score", *MODES)
    found["pendulum/score"] = _method("pendulum", "score", *PLAN)
    found["location-finding/pce"] = _method("location-finding", "pce")
    found["gravimetry/score"] = _by_score("gravimetry", LAPLACE, *MODES)
    found["location-finding-3d/static"] = _method("location-finding-3d", "static")
    for kind, task, policy in (
        ("transformer", "linear-gaussian", ()),
        ("transformer-direct", "pendulum", PLAN),
    ):
        settings = [f"score.kind={kind}", *TRANSFORMER]
        found[f"kind/{task}/{kind}"] = _by_score(task, settings, *policy)
    for task, policy in (("location-finding", MODES), ("pendulum", PLAN)):
        found[f"kind/{task}/laplace"] = _by_score(task, LAPLACE, *policy)
    for weights in ("none", "learned"):
        found[f"weights/{weights}"] = _by_score(
            "linear-gaussian", [*SCORE, f"score.weights={weights}"]
        )
    # Modes and plan are those of the method score above.
    for policy in ("dad", "static"):
        found[f"policy/location-finding/{policy}"] = _by_score(
            "location-finding", SCORE, "--policy", policy
        )
    for policy in ("gru", "attention"):
        found[f"policy/pendulum/{policy}"] = _by_score("pendulum", SCORE, "--policy", policy)
    found["references"] = Train("linear-gaussian", "score", [*SCORE, *POLICY, *BOUNDS])
    found["repeats"] = Train(
        "linear-gaussian",
        "pce",
        [*CONTRASTIVE, *BOUNDS, *CHOICE, ALONE],
        ("--repeats", "2", "--policies", "2"),
    )
    found["halvings"] = Train(
        "linear-gaussian",
        "score",
        [*SCORE, *POLICY, "policy_training.halvings=1", *BOUNDS, *CHOICE, ALONE],
        ("--policies", "3"),
    )
    found["seeds"] = Train(
        "linear-gaussian",
        "score",
        [*SCORE, "score.seeds=2", *POLICY, *BOUNDS, *CHOICE, ALONE],
        ("--policies", "3", "--seed", "7"),
    )
    found["reuse"] = Train(
        "linear-gaussian",
        "score",
        [*POLICY, *BOUNDS, ALONE],
        ("--score", "{run linear-gaussian/score}", "--policy", "static"),
    )
    found["reuse/jointscore"] = Train(
        "linear-gaussian",
        "jointscore",
        [*POLICY, *BOUNDS, ALONE],
        ("--score", "{run linear-gaussian/score}"),
    )
    found["reuse/varpost"] = Train(
        "linear-gaussian",
        "varpost",
        [*POLICY, *BOUNDS, ALONE],
        ("--score", "{run linear-gaussian/varpost}"),
    )
    for method, budget in {
        "score": 20_000,
        "pce": 20_000,
        "mlmc": 5_000,
        "iosmc": 5_000,
        "varpost": 5_000,
    }.items():
        found[f"budget/{method}"] = _method("linear-gaussian", method, "--budget", str(budget))
    found["match"] = _method("linear-gaussian", "pce", "--match", "{run linear-gaussian/score}")
    found["match/jointscore"] = _method(
        "linear-gaussian", "jointscore", "--match", "{run linear-gaussian/pce}"
    )
    return found


TRAINS = _trains()

# Other commands on a run: its name, and the words before and after its folder.
COMMANDS: dict[str, tuple[str, list[str], list[str]]] = {
    "evaluate/contrastive": (
        "location-finding/score",
        ["evaluate"],
        ["--outer", "16", "--inner", "500"],
    ),
    "evaluate/importance": (
        "location-finding/score",
        ["evaluate"],
        ["--bound", "importance", "--outer", "16"],
    ),
    "evaluate/importance/pendulum": (
        "pendulum/score",
        ["evaluate"],
        ["--bound", "importance", "--outer", "16"],
    ),
    "evaluate/smc": (
        "location-finding-3d/static",
        ["evaluate"],
        ["--bound", "smc", "--outer", "16", "--inner", "8", "--levels", "16"],
    ),
    "diagnose/exact": ("linear-gaussian/score", ["diagnose"], ["--outer", "16"]),
    "diagnose/importance": (
        "linear-gaussian/score",
        ["diagnose"],
        ["--outer", "16", "--truth", "importance", "--inner", "500"],
    ),
    "diagnose/smc": (
        "linear-gaussian/score",
        ["diagnose"],
        ["--outer", "16", "--truth", "smc", "--particles", "32"],
    ),
    "report": ("references", ["report"], []),
}

TABLES = ("location", "dynamical", "gravimetry", "mlmc", "iosmc")

# What is typed in a session, and its options. Ten steps each; the second meets every kind of line
# but a refinement.
SESSIONS: dict[str, tuple[str, list[str], list[str]]] = {
    "live/location-finding": (
        "location-finding/score",
        [],
        ["0.4", "0.1", "-0.3", "0.2", "0.6", "0.9", "0.3", "-0.1", "0.5", "0.7", "q"],
    ),
    "live/changes": (
        "policy/location-finding/dad",
        ["--limits", "-3:3 -3:3"],
        [
            "0.4",
            "0.1",
            "u",
            "0.2",
            "c 1 0.3",
            "s",
            "n sensor cleaned",
            "0.6 @ 0.5 -0.5",
            "l -2:2 -2:2",
            "0.2",
            "t 12",
            "0.3",
            "w 0.1",
            "-0.1",
            "l off",
            "0.5",
            "0.7",
            "0.4",
            "0.2",
            "q",
        ],
    ),
    "live/pendulum": (
        "pendulum/score",
        [],
        [
            "0.01 0.02",
            "0.02 0.04",
            "0.03 0.05",
            "0.04 0.05",
            "0.05 0.04",
            "0.05 0.02",
            "0.05 0",
            "0.05 -0.02",
            "0.04 -0.04",
            "0.03 -0.05",
            "q",
        ],
    ),
}

# A run that is stopped and goes on: by a kill when a checkpoint stands in the middle of a stage,
# and by Ctrl-C.
STOPPED = Train(
    "linear-gaussian",
    "score",
    [
        *SCORE,
        "policy_training.steps=8000",
        "policy_training.batch=16",
        "policy_training.monitor_every=4000",
        "policy_training.monitor_inner=32",
        *BOUNDS,
        ALONE,
    ],
)
STOPS = ("resume/killed", "resume/interrupted")

NAMES = (*TRAINS, *COMMANDS, *(f"nle/{table}" for table in TABLES), *SESSIONS, *STOPS)
