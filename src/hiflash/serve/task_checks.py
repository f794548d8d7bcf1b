"""What a client holds its edge to: the tasks of its own configuration, and secure sums if that says so.

A task on other terms may single one client out. If all others train with a learning rate of 0, the sum of
their changes is the change of one.
"""

from __future__ import annotations

import math

from hiflash.core.edge_rules import Workload
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError
from hiflash.serve.memory import Memory

__all__ = ["check_sum", "check_task", "why_not"]

MOST_STEPS = 2**53
LEAST_RATE = 0.5  # of the learning rate that a client's own steps lead to


def check_sum(told: pb.Task, *, secure: bool) -> None:
    """Raise unless a task ends in a secure sum exactly if the configuration says so."""
    if told.HasField("sum") != secure:
        asked, wanted = ("single models", "secure sums") if secure else ("a secure sum", "none")
        raise CallError("mismatch", f"the edge asks for {asked}, and the configuration for {wanted}")


def check_task(told: pb.Task, workload: Workload, seed: int) -> None:
    """Raise unless a task has the steps, the learning rate and the seed of the configuration."""
    if told.first_step > MOST_STEPS:
        raise CallError("mismatch", f"a task begins at step {told.first_step}")
    steps, lr = workload.steps, workload.rate(told.first_step)
    # Another machine may round a power otherwise.
    if (told.steps, told.seed) != (steps, seed) or not math.isclose(told.lr, lr, rel_tol=1e-9):
        given = f"{told.steps} steps with learning rate {told.lr:g} and seed {told.seed}"
        wanted = f"{steps} steps with {lr:g} and {seed}"
        raise CallError("mismatch", f"the edge asks for {given}, and the configuration for {wanted}")


def why_not(told: pb.Task, workload: Workload, memory: Memory) -> str | None:
    """Return why a client does not take part in the secure sum of a task, None if it does.

    The same task with other clients would tell an edge more than one sum; and after a restart the keys of
    this one are lost. Steps that an edge counts and the client does not are those of tasks that never reached
    it. They must not make its learning rate small.
    """
    if told.first_step < memory.steps:
        return "it has begun this task before"
    taken = told.first_step - memory.skipped_before(told.first_step)
    if workload.rate(told.first_step) < LEAST_RATE * workload.rate(taken):
        return "too many of the steps before this task never reached it"
    return None
