"""Members of a batch trained apart from each other, in any groups and order, come out as if trained
as one: parameters, best ones, bounds, the step at which all end, and the history.
"""

import math
import random
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from scorebed.training.apart import Apart, from_plain, plain, put_in, put_together, take_apart
from scorebed.training.stage import BatchStage, FixedCost
from scorebed.training.watched import moment

COUNT = 3
TARGETS = jnp.asarray([0.3, -1.0, 1.8])


class Member(eqx.Module):
    """What stands for a policy: a number on its way to a place of its own."""

    x: jax.Array


def gradient_for(_):
    """A noisy pull towards 1, the noise of which follows from the key."""

    def gradient(params, key):
        away = params.x - 1 + 0.3 * jr.normal(key)
        return {"distance": away**2}, Member(2 * away)

    return gradient


def stage_of(*, patience, halvings, steps=24, every=6):
    return BatchStage(
        name="policy-0-0",
        steps=steps,
        count=COUNT,
        make=lambda: Member(TARGETS),
        gradient_for=gradient_for,
        optimiser=optax.adam(0.1),
        decay=0.5,
        estimate=lambda policy: -float((policy.x - 1) ** 2),
        every=every,
        patience=patience,
        halvings=halvings,
        costs=FixedCost(1),
        key=jr.key(3),
    )


class Trained(NamedTuple):
    watched: object
    history: list


def trained_as_one(stage):
    history = []
    watched = stage.go_on(stage.start(), on_block=lambda block: history.append(moment(block)))
    return Trained(watched, history)


def trained_apart(stage, dice):
    """Rounds of groups in any order; the first group is cut and goes on from what was kept."""
    watched, history, rounds = stage.start(), [], 0
    while watched.done < stage.last_step(watched):
        until, groups = stage.apart_until(watched), []
        for members in dice.sample(stage.shares(watched), len(stage.shares(watched))):
            kept, lines = [], []

            def on_block(block, members=members, kept=kept, lines=lines):
                lines.append(plain(moment(block)))
                kept.append((len(lines), take_apart(block.watched, members)))

            found = stage.go_on_apart(watched, members, until, on_block=on_block)
            if not history and not groups:
                number, part = kept[len(kept) // 2]
                del lines[number:]
                resumed = put_in(watched, members, part)
                found = stage.go_on_apart(resumed, members, until, on_block=on_block)
            part = take_apart(found, members)
            groups.append(Apart(members, part, [from_plain(each) for each in lines]))
        watched, new = put_together(watched, groups)
        history += new
        rounds += 1
    return Trained(watched, history), rounds


@pytest.mark.parametrize(("patience", "halvings"), [(0, 0), (9, 1)])
def test_groups_put_together_are_the_batch(patience, halvings):
    stage = stage_of(patience=patience, halvings=halvings)
    one = trained_as_one(stage)
    apart, rounds = trained_apart(stage, random.Random(patience))
    for ours, theirs in zip(jax.tree.leaves(apart), jax.tree.leaves(one), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert stage.survivors(apart.watched) == stage.survivors(one.watched)
    assert stage.nle(apart.watched) == stage.nle(one.watched)
    assert (apart.watched.done < stage.steps) == (patience > 0)
    # Where policies learn nothing of each other one round is enough.
    assert rounds == 1 if not (patience or halvings) else rounds > 1


def test_patience_lasts_from_one_estimate_to_the_next():
    rising = stage_of(patience=2, halvings=0)
    assert trained_as_one(rising).watched.done == rising.steps
    unwatched = stage_of(patience=2, halvings=0, every=0)
    assert trained_as_one(unwatched).watched.done == unwatched.steps


def test_one_member_is_a_group_of_all():
    start = stage_of(patience=0, halvings=0).start()
    whole = tuple(range(COUNT))
    assert take_apart(start, whole) is start
    assert put_together(start, [Apart(whole, start, [])]) == (start, [])
    back = from_plain({"step": 3, "terms": {"loss": [1.0, None]}, "lower": [None]})
    assert back.step == 3
    assert math.isnan(back.terms["loss"][1])
    assert math.isnan(back.lower[0])
