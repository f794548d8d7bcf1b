"""A whole deployed federation in one process: real services and agents, gRPC with TLS, tiny data."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import hiflash
from hiflash.config import Config
from hiflash.serve.assemble import Deployment
from hiflash.serve.authority import make_throwaway_federation
from hiflash.serve.channels import open_channels
from hiflash.serve.deployable import check_clients_hidden, check_deployable
from hiflash.serve.nodes import Place, run_client, run_cloud, run_edge
from hiflash.serve.state import StateFolder
from hiflash.sim.federation import build
from tiny import TINY, make_tiny_data, make_tiny_model

__all__ = ["Inside", "tiny_config"]

HOST = "127.0.0.1:0"


def tiny_config(**settings: Any) -> Config:
    """Return a configuration for tiny data with two edges and four clients."""
    small = {
        **TINY,
        "federation.clients": 4,
        "federation.edges": 2,
        "stop.communications": 12,
        "serve.keep_client_updates": True,
        "data.name": "own",
        "model.name": "own",
    }
    return Config().with_settings({**small, **settings})


class Inside:
    """Runs a configuration deployed, to its end, and remembers where its state is."""

    def __init__(self, config: Config, folder: Path, make_model: Any = make_tiny_model) -> None:
        self.config = config
        self.make_model = make_model
        self.folder = folder
        self.state = folder / "state"
        self.certs = folder / "certs"
        check_deployable(config)
        units = config.federation
        make_throwaway_federation(self.certs, "tiny", 0 if units.flat else units.edges, units.clients)
        self.deployment = self.deploy()

    def deploy(self) -> Deployment:
        federation = build(self.config, make_tiny_data(), self.make_model)
        check_clients_hidden(self.config, federation.population.edge_clusters)
        return Deployment(federation)

    def simulated(self) -> hiflash.Result:
        """Return the result of the simulator."""
        return hiflash.run(self.config, data=make_tiny_data(), model=self.make_model)

    def run(self) -> hiflash.Result:
        """Return the result of the deployed run."""
        try:
            return asyncio.run(asyncio.wait_for(self._run(), 60))
        finally:
            self.deployment.federation.close()

    def place(self, who: str, **where: str) -> Place:
        return Place(open_channels(self.certs, who, [], insecure=False), **where)

    async def _run(self) -> hiflash.Result:
        store = StateFolder.open(self.state, self.config.to_toml(), self.config.serve.keep)
        stop, units = asyncio.Event(), self.config.federation
        async with AsyncExitStack() as stack:
            stack.callback(store.close)
            listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            place = Place(
                open_channels(self.certs, "cloud", [], insecure=False), HOST, ready=listening.set_result
            )
            cloud = asyncio.create_task(run_cloud(self.deployment, store, place, stop, lambda result: None))
            await asyncio.wait({cloud, listening}, return_when=asyncio.FIRST_COMPLETED)
            if cloud.done():
                cloud.result()
            address = await listening
            nodes = [] if units.flat else [self._edge(edge, address, stop) for edge in range(units.edges)]
            nodes += [self._client(client, address, stop) for client in range(units.clients)]
            tasks = [asyncio.create_task(node) for node in nodes]
            try:
                result = await cloud
            finally:
                stop.set()
                await asyncio.gather(*tasks)
            assert result is not None
            return result

    async def _edge(self, edge: int, address: str, stop: asyncio.Event) -> None:
        place = self.place(f"edge/{edge}", listen=HOST, cloud=address)
        await run_edge(self.deployment, edge, place, stop, folder=self.folder)

    async def _client(self, client: int, address: str, stop: asyncio.Event) -> None:
        place = self.place(f"client/{client}", cloud=address)
        await run_client(self.deployment, client, place, stop, memory=self.folder)
