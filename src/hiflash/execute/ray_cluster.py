"""A connection to Ray: to one that this process starts for itself, or to one that runs already."""

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
# Workers belong to one program. Of several that share a Ray, each would lose its workers after a second
# without work, and wait for new ones that import torch again.
PATIENCE = {"idle_worker_killing_time_threshold_ms": 60_000}


@dataclass(frozen=True)
class RayConnection:
    """A connection of this process to a Ray; another process of this machine can join it at `address`."""

    address: str
    cpus: int
    owned: bool

    def close(self) -> None:
        """Leave Ray, and stop it if it was started here; a connection found open stays open."""
        if self.owned:
            import ray

            ray.shutdown()


def connect(address: str, workers: int) -> RayConnection:
    """Return a connection to the Ray at `address`, or to the one this process is connected to anyway.

    `local` starts one with that many workers that is reached from this machine only; `auto` and
    `host:port` join one that runs, whose own workers are used.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("executor ray needs the package ray: pip install 'hiflash[ray]'") from None
    owned = not ray.is_initialized()
    if owned:
        try:
            _join(address, workers)
        except Exception as error:  # a Ray that is too slow to start raises nothing more special
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
        # Ray keeps the token that lets others in here, and would let everybody on this machine read it.
        (Path.home() / ".ray").mkdir(mode=0o700, exist_ok=True)
    with _undisturbed(), _known_as_loopback(local or address.startswith(LOOPBACK)):
        ray.init(**where, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    if local and not ray.get_runtime_context().gcs_address.startswith(LOOPBACK):
        raise RuntimeError(f"Ray {ray.__version__} would listen on all network interfaces")


@contextmanager
def _known_as_loopback(wanted: bool) -> Iterator[None]:
    """Have Ray call this machine 127.0.0.1, so that it listens there only and not on all interfaces.

    It does so by itself on macOS and Windows; elsewhere it replaces even a given loopback address.
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
    """Keep what `ray.init` would change for the whole process, and its advice to itself."""
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)  # Ray's own would end a run that is asked to pause
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
