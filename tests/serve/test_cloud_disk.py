"""A cloud whose disk refuses: it ends with that error alone, and says how a cloud goes on."""

import asyncio
import socket
from contextlib import suppress

import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

from chaos.federation import HOST, configuration
from hiflash.errors import StorageError
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.assemble import deploy
from hiflash.serve.calls import CallError
from hiflash.serve.channels import open_channels
from hiflash.serve.nodes import Place, run_cloud
from hiflash.serve.state import StateFolder
from hiflash.serve.wire import PROTOCOL
from hiflash.study.deploy import run_until_stopped


@pytest.fixture
def deployment():
    made = deploy(configuration("hierfavg", 4))
    yield made
    made.federation.close()


def test_a_failed_commit_ends_the_cloud_with_one_error(deployment, tmp_path, monkeypatch):
    store = StateFolder.open(tmp_path / "state", deployment.config.to_toml(), "all")
    full = StorageError("journal.sqlite cannot be written: disk full")
    answers, addresses = [], []

    def refuse(rows):
        raise full

    monkeypatch.setattr(store.journal, "commit", refuse)
    monkeypatch.setattr(store, "write_status", lambda status: refuse([]))  # it is on the same disk

    async def main(stop):
        listens = asyncio.get_running_loop().create_future()
        place = Place(open_channels(None, "cloud", [], insecure=False), f"{HOST}:0", ready=listens.set_result)
        serving = asyncio.create_task(run_cloud(deployment, store, place, stop, lambda result: None))
        address = await listens
        addresses.append(address)
        edge = open_channels(None, "edge/0", [address], insecure=False).to(address, "cloud", 0, 10**6)
        config, spec = deployment.digests
        hello = pb.Hello(protocol=PROTOCOL, node=0, config_digest=config, spec_digest=spec)
        with suppress(CallError):
            answers.append(await edge.call("Hello", hello.SerializeToString(), timeout_s=5.0))
        await edge.close()
        await serving

    with pytest.raises(StorageError) as caught:
        run_until_stopped(main)
    store.close()
    assert caught.value is full
    assert not answers
    host, _, port = addresses[0].rpartition(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=5):
        pytest.fail("the server was not stopped")


def test_a_failed_snapshot_does_not_name_the_command_of_a_simulation(deployment, tmp_path, monkeypatch):
    store = StateFolder.open(tmp_path / "state", deployment.config.to_toml(), "all")

    def refuse(*_):
        raise StorageError("checkpoint.safetensors cannot be written: disk full")

    monkeypatch.setattr("hiflash.store.run_directory.save_checkpoint", refuse)
    with pytest.raises(StorageError) as caught:
        asyncio.run(store.save({"number": 0}))
    store.close()
    assert caught.value.then == ""  # whoever started the cloud knows how to go on
