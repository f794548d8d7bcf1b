"""The packages that secure sums need, and what to do without them."""

from __future__ import annotations

from hiflash.errors import ConfigError

__all__ = ["has_packages", "require_packages"]


def require_packages(setting: str) -> None:
    """Raise if a package is missing that secure sums need; `setting` is what asks for them."""
    try:
        import hiflash.privacy.sums.in_memory  # noqa: F401  # it imports all of them
    except ImportError as error:
        raise ConfigError(
            f'{setting} needs a package that is not installed ({error.name}): pip install "hiflash[serve]"'
        ) from None


def has_packages() -> bool:
    """Return whether secure sums are possible here."""
    try:
        require_packages("")
    except ConfigError:
        return False
    return True
