"""How clients find their edge: the cloud says where it is, or it is in the same process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hiflash.errors import ConfigError
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import Caller, Peer, Service
from hiflash.serve.client import Found
from hiflash.serve.cluster import Cluster
from hiflash.serve.patience import Patience
from hiflash.serve.wire import Wire

__all__ = ["Inside", "PlacedByCloud", "WithinProcess"]


class PlacedByCloud:
    """The way of a client whose edge is elsewhere. `connect` returns the way to an edge's address."""

    def __init__(
        self,
        client: int,
        wire: Wire,
        cloud: Caller,
        connect: Callable[[int, str], Caller],
        patience: Patience,
    ) -> None:
        self.client = client
        self.wire = wire
        self.cloud = cloud
        self.connect = connect
        self.patience = patience

    async def find(self, last: tuple[int, int]) -> Found:
        """Ask the cloud for the edge of this client."""
        body = pb.Place(node=self.client, lease_id=last[0], round=last[1]).SerializeToString()
        told = self.wire.read(pb.Placed, await self.patience.call(self.cloud, "Place", body))
        edge = None
        with suppress(ConfigError):  # an address that cannot be called is not known yet
            edge = self.connect(told.edge, told.address) if told.address else None
        return Found(edge, told.finished, told.settled, told.run)


class WithinProcess:
    """Calls a service in the same process."""

    def __init__(self, service: Service, me: Peer) -> None:
        self.service = service
        self.me = me

    async def call(self, method: str, body: bytes, *, timeout_s: float) -> bytes:
        """Return the answer; nothing can get lost on this way."""
        return await self.service.serve(method, self.me, body)


class Inside:
    """The way of a flat method's client: it is an edge of its own, with itself as its only client."""

    def __init__(self, client: int, cluster: Cluster, cloud: PlacedByCloud) -> None:
        self.client = client
        self.cluster = cluster
        self.cloud = cloud

    async def find(self, last: tuple[int, int]) -> Found:
        """Return the cluster of this process; what became of a task before a restart, the cloud knows."""
        settled = self.cluster.tasks.of(self.client, last)
        if last[0] and not settled:
            settled = (await self.cloud.find(last)).settled
        way = WithinProcess(self.cluster, Peer("client", self.client))
        return Found(way, self.cluster.over.is_set(), settled, self.cluster.run)
