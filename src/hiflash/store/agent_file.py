"""An agent as one safetensors file: its arrays, a description as JSON, and a checksum of both. No pickle."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.core.thresholds.agent import NETWORKS, Agent, network_shapes
from hiflash.errors import ConfigError, ProtocolError
from hiflash.store.checksums import arrays_sha256
from hiflash.store.files import write_atomic
from hiflash.weights import HEADER_LIMIT, Spec, from_bytes

__all__ = ["load_agent", "save_agent"]

FORMAT = 2
ENTRY = "hiflash_agent"
CHECKSUM = "sha256"
MOST_BYTES = 64 * 2**20
MOST = 1_000_000  # edges, and thresholds: the limit of a configuration too


def save_agent(path: Path | str, agent: Agent) -> None:
    """Write an agent so that a crash at any instant leaves the old file or the new one."""
    from safetensors.numpy import save

    described = {
        "format": FORMAT,
        "network": agent.network,
        "edges": agent.edges,
        "threshold_max": agent.threshold_max,
        "about": dict(agent.about),
    }
    text = json.dumps(described)
    if len(text) > HEADER_LIMIT // 4:  # quoting makes it longer, and the header has the array names too
        raise ConfigError(
            f"the description of an agent may have {HEADER_LIMIT // 4} characters, got {len(text)}; say less"
        )
    arrays = {name: np.ascontiguousarray(array, "<f4") for name, array in agent.arrays.items()}
    metadata = {ENTRY: text, CHECKSUM: arrays_sha256(text, arrays)}
    write_atomic(Path(path), save(arrays, metadata=metadata))


def load_agent(path: Path | str) -> Agent:
    """Return a saved agent, or say what is wrong with the file."""
    path = Path(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} is no agent: it has more than {MOST_BYTES:,} bytes")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"the agent {path} does not exist; train one with hiflash train-agent, or give another file"
        ) from None
    except OSError as error:
        raise ConfigError(f"the agent {path} cannot be read: {error.strerror}") from None
    text, checksum = _metadata(path, data)
    network, edges, threshold_max, about = _described(path, text)
    shapes = network_shapes(network, edges, threshold_max + 2)
    spec = Spec(tuple(shapes.items()))
    try:
        arrays = spec.split(from_bytes(data, spec))
        if arrays_sha256(text, arrays) != checksum:
            raise ProtocolError("its checksum does not match")  # noqa: TRY301  # reported below
        return Agent(network, arrays, edges, threshold_max, about)
    except (ProtocolError, ConfigError) as error:
        raise ConfigError(f"the agent {path} is damaged ({error}); train or copy it again") from None


def _metadata(path: Path, data: bytes) -> tuple[str, Any]:
    """Return the description and the checksum in the header of an agent file."""
    header_bytes = int.from_bytes(data[:8], "little")
    try:
        if not 0 < header_bytes <= min(HEADER_LIMIT, len(data) - 8):
            raise ValueError  # noqa: TRY301  # reported below
        metadata = json.loads(data[8 : 8 + header_bytes])["__metadata__"]
        return str(metadata[ENTRY]), metadata.get(CHECKSUM)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{path} is not an agent that hiflash train-agent has saved") from None


def _described(path: Path, text: str) -> tuple[str, int | None, int, dict[str, str | float]]:
    """Return network, edges, threshold_max and about of an agent."""
    try:
        told = json.loads(text)
        found = told["format"], told["network"], told["edges"], told["threshold_max"], told["about"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path} is not an agent that hiflash train-agent has saved") from None
    form, network, edges, threshold_max, about = found
    if form != FORMAT:
        raise ConfigError(
            f"the agent {path} has format {form}, this version reads {FORMAT}; "
            "use the version that saved it or train another"
        )
    if not (
        network in NETWORKS
        and (edges is None if network == "shared" else _whole(edges, 1))
        and _whole(threshold_max, 0)
        and isinstance(about, dict)
        and all(_plain(value) for value in about.values())
    ):
        raise ConfigError(f"the agent {path} is damaged (its description); train or copy it again")
    return network, edges, threshold_max, about


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= MOST


def _plain(value: Any) -> bool:
    # Compared, not converted: an int may be too large for a float. A NaN fails the comparison.
    return isinstance(value, str) or (type(value) in (int, float) and abs(value) <= sys.float_info.max)
