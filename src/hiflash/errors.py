"""Every error a user can cause, one class per situation; messages say what, got, where, and the way out."""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "ConfigError",
    "DamageError",
    "DataError",
    "HiFlashError",
    "IdentityError",
    "Paused",
    "ProtocolError",
    "RunError",
    "StorageError",
]


class HiFlashError(Exception):
    """Something the user can put right; the command line prints it and exits with code 2."""


class ConfigError(HiFlashError):
    """A configuration that cannot be run; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class BudgetError(HiFlashError):
    """A charge that would exceed the privacy budget of a client; nothing was charged or opened."""


class DataError(HiFlashError):
    """A dataset or partition that is missing, damaged or unusable."""


class IdentityError(HiFlashError):
    """A key, certificate or identity that is missing, wrong, expired or somebody else's."""


class RunError(HiFlashError):
    """A run directory that cannot be created, read or resumed."""


class StorageError(RunError):
    """A file that cannot be written: a full disk, a size limit, a read-only folder.

    `what` names file, reason and remedy; `then` says how to go on afterwards, if the raiser knows.
    """

    def __init__(self, what: str, then: str = "") -> None:
        self.what, self.then = what, then
        super().__init__(f"{what}, then {then}" if then else what)


class DamageError(RunError):
    """A saved file whose bytes have changed since HiFlash wrote it: flipped, cut off, zeroed, edited."""


class ProtocolError(HiFlashError):
    """An event or a value that breaks the protocol between clients, edges and cloud."""


class Paused(Exception):  # noqa: N818  # not an error: the run can go on from where it stopped
    """A run was asked to stop before its end; `directory` is where it can be resumed from."""

    def __init__(self, directory: str | None, said: str | None = None) -> None:
        self.directory = directory
        usual = f"paused; resume with: hiflash run --resume {directory}" if directory else "stopped"
        super().__init__(said or usual)


def first_error(group: BaseException) -> BaseException:
    """Return the first error of a group of errors, which says enough.

    >>> first_error(ExceptionGroup("both", [ValueError("one"), ValueError("two")]))
    ValueError('one')
    """
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
