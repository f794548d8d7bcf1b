"""What deployed nodes bring to secure sums: the keys of their certificates, and a source of fresh ones."""

from __future__ import annotations

from hiflash.privacy.randomness import Randomness, SystemRandomness, require_system
from hiflash.serve.assemble import Deployment
from hiflash.serve.channels import Channels
from hiflash.serve.client_sums import ClientSums
from hiflash.serve.edge_sums import EdgeSums
from hiflash.serve.signing import CertificateSigner, CertificateVerifier

__all__ = ["client_sums", "edge_sums"]


def edge_sums(deployment: Deployment, channels: Channels) -> EdgeSums | None:
    """Return what an edge needs for secure sums; None without them, or without certificates."""
    credentials, settings = channels.credentials, deployment.config.edge
    if not deployment.secure or credentials is None:
        return None
    verifier = CertificateVerifier(credentials, channels.denied)
    return EdgeSums(credentials.identity.federation, settings.secure_bound, verifier)


def client_sums(
    deployment: Deployment, channels: Channels, randomness: Randomness | None = None
) -> ClientSums | None:
    """Return what a client needs for secure sums; None without them, or without certificates.

    A seeded source of keys is refused.
    """
    credentials, settings = channels.credentials, deployment.config.edge
    if not deployment.secure or credentials is None:
        return None
    return ClientSums(
        credentials.identity.federation,
        settings.secure_bound,
        CertificateSigner(credentials),
        CertificateVerifier(credentials, channels.denied),
        require_system(SystemRandomness() if randomness is None else randomness),
    )
