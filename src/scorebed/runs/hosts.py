"""One training over several hosts: what is learned upfront, data parallel.

Every host runs the same command. Host 0 leads: it has the run folder, and sends the configuration
and the state that training starts from. The others need no folder: they compute their share of
every batch, and leave when what is learned upfront is there; host 0 then goes on alone. All hosts
take the same steps, so that the result is that of one host up to the order of sums.
"""

from scorebed._sharding import host_mesh
from scorebed.errors import require
from scorebed.methods.base import Job, Method
from scorebed.runs.config import RunConfig, from_values, parse_toml, to_toml
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.host_team import Team, others_lost
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import UserParts, hand_over, hand_over_rest
from scorebed.runs.user_task import task_of
from scorebed.tasks.base import Task


def lead(
    team: Team, folder: RunFolder, config: RunConfig, task: Task, *, progress: Progress
) -> None:
    """Learn what is left to learn upfront together with the others, into the run's folder; then
    they leave.
    """
    method, job = config.trained_by, job_for(config, task)
    left = _left(folder, method, job)
    team.waiting = False
    team.same_text(to_toml(config))
    team.same_text(",".join(map(str, left)))
    execution = Execution(folder, config, task, progress=progress, carry=team.carry_out)
    for index in left:
        execution.upfront(index)
    team.leave()


def assist(team: Team, parts: UserParts) -> None:
    """Do what host 0 says, until it is done. `parts` are the user's own, which this host has read
    itself: no code travels.
    """
    text = team.same_text("")
    if text == "":
        team.leave()
    require(
        text != "",
        "the command of host 0",
        got="an error",
        expected="a run to work on",
        fix="see what host 0 says.",
    )
    values = parse_toml(text.encode(), where="of host 0")
    hand_over(values, parts, strict=True)
    config = from_values(values)
    hand_over_rest(config, parts, strict=True)
    method = config.trained_by
    job = job_for(config, task_of(config, parts.task, strict=True))
    left = [int(each) for each in team.same_text("").split(",") if each]
    for index in left:
        stage = method.upfront(job, index)
        assert stage is not None, "host 0 names stages that there are"
        watched = team.same(stage.start())
        with others_lost(), host_mesh(team.devices):
            stage.go_on(watched)
    team.leave()


def require_upfront(config: RunConfig, task: Task) -> None:
    """Refuse several hosts for a run that has nothing to share among them."""
    method, job = config.trained_by, job_for(config, task)
    stage = None if job.taken_over else method.upfront(job, 0)
    require(
        stage is not None and stage.steps > 0,
        "--hosts",
        got=f"the method {config.method}, which trains nothing before its policies",
        expected="a score or density to train",
        fix="share policies out by --dask or --workers instead.",
    )


def _left(folder: RunFolder, method: Method, job: Job) -> list[int]:
    """The numbers of what is still to be learned upfront."""
    numbers = range(job.upfronts(method.parts(job)))
    stages = [(index, method.upfront(job, index)) for index in numbers]
    return [
        index
        for index, stage in stages
        if stage is not None and not (folder.path / f"{stage.name}.safetensors").exists()
    ]
