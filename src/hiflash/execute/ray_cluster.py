"""A connection to a Ray cluster: a private one that this process starts, or one that runs already."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiflash.errors import ConfigError, RunError

__all__ = ["RayConnection", "connect"]

NAMESPACE = "hiflash"
LOOPBACK = "127.0.0.1:"
# Ray workers belong to one program. When several programs share a cluster, Ray ends a program's workers after
# a second without work. Its next task then waits for new workers to import torch.
PATIENCE = {"idle_worker_killing_time_threshold_ms": 60_000}


@dataclass(frozen=True)
class RayConnection:
    """The connection of this process to a Ray cluster; other local processes can join it at `address`."""

    address: str
    cpus: int
    owned: bool

    def close(self) -> None:
        """Leave Ray, and stop a cluster started here. A connection that was open before stays open."""
        if self.owned:
            import ray

            ray.shutdown()


def connect(address: str, workers: int) -> RayConnection:
    """Return a connection to the Ray cluster at `address`, or this process's open connection if it has one.

    `local` starts a cluster with this many workers, reachable from this machine only. `auto` and `host:port`
    join a running cluster and use the workers that it has.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("executor ray needs the package ray: pip install 'hiflash[ray]'") from None
    owned = not ray.is_initialized()
    if owned:
        try:
            _join(address, workers)
        except Exception as error:  # Ray has no special error for a slow start
            ray.shutdown()
            raise RunError(f"cannot use Ray at ray.address {address}: {error}") from error
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    return RayConnection(ray.get_runtime_context().gcs_address, cpus, owned)


def _join(address: str, workers: int) -> None:
    import ray

    where: dict[str, Any] = {"address": address}
    local = address == "local"
    if local:
        where |= {"num_cpus": workers, "include_dashboard": False, "_system_config": PATIENCE}
        # Ray keeps its access token in this folder, and would make it readable for all users of this machine.
        (Path.home() / ".ray").mkdir(mode=0o700, exist_ok=True)
    with _undisturbed(), _known_as_loopback(local or address.startswith(LOOPBACK)):
        ray.init(**where, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    if local and not ray.get_runtime_context().gcs_address.startswith(LOOPBACK):
        raise RuntimeError(f"Ray {ray.__version__} would listen on all network interfaces")


@contextmanager
def _known_as_loopback(wanted: bool) -> Iterator[None]:
    """Make Ray use the address 127.0.0.1, so that it listens there only and not on all interfaces.

    Ray does so by itself on macOS and Windows. Elsewhere it replaces even an explicit loopback address.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = before and not wanted
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Undo the process-wide changes of `ray.init`, and silence its advice."""
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)  # Ray's own handler would end a run that should pause
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
        if in_main:
            signal.signal(signal.SIGTERM, handler)
