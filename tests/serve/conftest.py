"""Federations for the tests of identities; the tests skip where the extra is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def ca_folder(tmp_path: Path) -> Path:
    """Return the folder of the CA of federation `hospitals`, whose cloud is on loopback."""
    pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')
    from hiflash.serve.authority import create_federation

    create_federation(tmp_path / "federation", "hospitals")
    return tmp_path / "federation"


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificates of a cloud, two edges and two clients of `hospitals`."""
    pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')
    from hiflash.serve.authority import make_throwaway_federation

    folder = tmp_path_factory.mktemp("certificates") / "hospitals"
    make_throwaway_federation(folder, "hospitals", edges=2, clients=2)
    return folder
