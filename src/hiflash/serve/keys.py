"""What deployed nodes bring to secure sums: the keys of their certificates, and a source of fresh ones."""

from __future__ import annotations

from hiflash.privacy.randomness import Randomness, SystemRandomness, require_system
from hiflash.serve.assemble import Deployment
from hiflash.serve.channels import Channels
from hiflash.serve.charges import EdgeCharges
from hiflash.serve.client_sums import ClientSums
from hiflash.serve.edge_sums import EdgeSums
from hiflash.serve.signing import CertificateSigner, CertificateVerifier

__all__ = ["client_sums", "edge_sums"]


def edge_sums(
    deployment: Deployment, channels: Channels, charges: EdgeCharges | None = None
) -> EdgeSums | None:
    """Return what an edge needs for secure sums; None without them, or without certificates.

    The ledger of `charges` makes them private.
    """
    credentials = channels.credentials
    if not deployment.secure or credentials is None:
        return None
    verifier = CertificateVerifier(credentials, channels.denied)
    return EdgeSums(credentials.identity.federation, _bound(deployment), verifier, charges)


def client_sums(
    deployment: Deployment, channels: Channels, randomness: Randomness | None = None
) -> ClientSums | None:
    """Return what a client needs for secure sums; None without them, or without certificates.

    A seeded source of keys and noise is refused.
    """
    credentials, plan = channels.credentials, deployment.plan
    if not deployment.secure or credentials is None:
        return None
    return ClientSums(
        credentials.identity.federation,
        _bound(deployment),
        CertificateSigner(credentials),
        CertificateVerifier(credentials, channels.denied),
        require_system(SystemRandomness() if randomness is None else randomness),
        0.0 if plan is None else plan.noise,
        deployment.most_declared,
    )


def _bound(deployment: Deployment) -> float:
    """Return the most that a client's change may be: of each value, or of its norm in private sums."""
    plan = deployment.plan
    return deployment.config.edge.secure_bound if plan is None else plan.clip
