"""Which agents the cells were run with: a configuration says where one lies, not what it is."""

from __future__ import annotations

import json
from pathlib import Path

from hiflash.agents import find_agent
from hiflash.errors import RunError
from hiflash.evaluation.plan import AGENT, Plan
from hiflash.parts import threshold_policy
from hiflash.store.files import write_atomic

__all__ = ["record_agents", "recorded_agents"]

FILE = "agents.json"

Agents = dict[str, dict[str, str]]
"""The name or file of the agent and its digest, by condition."""


def recorded_agents(folder: Path) -> Agents:
    """Return the agents that the cells in a folder were run with, as far as it was recorded."""
    file = folder / FILE
    agents: Agents = json.loads(file.read_bytes()) if file.is_file() else {}
    return agents


def record_agents(plan: Plan, folder: Path) -> Agents:
    """Return and write down the agents of a plan; one that cannot act here, or was another, is an error."""
    before, agents = recorded_agents(folder), {}
    for cell in plan.cells:
        condition, config = cell.tags["condition"], cell.config
        if cell.tags["policy"] != AGENT:
            continue
        if condition not in agents:
            threshold_policy(config)  # an agent for another number of edges is told before anything runs
            agent = find_agent(config.cloud.agent, config.data.name, config.federation.association)
            agents[condition] = {"agent": config.cloud.agent, "digest": agent.digest}
        was, now = before.get(condition, agents[condition])["digest"], agents[condition]["digest"]
        if was != now and (folder / cell.name).exists():
            raise RunError(
                f"{folder / cell.name} was run with another agent ({was[:12]}) than "
                f"{config.cloud.agent} is now ({now[:12]}); choose another --name or remove the agent's cells"
            )
    if agents:
        write_atomic(folder / FILE, json.dumps({**before, **agents}, indent=1) + "\n")
    return agents
