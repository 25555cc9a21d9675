"""The error family.

Every message says what was received, what was expected and how to fix it. `exit_code` is what the
command line ends with: 1 the answer is no, 2 wrong input, 3 broken environment.
"""

from collections.abc import Sequence


class MemfitError(Exception):
    """Anything memfit refuses or cannot do, said in one sentence."""

    exit_code = 2


class InputError(MemfitError):
    """Something the user wrote cannot be used as it is."""


class SizeError(InputError, ValueError):
    """A memory size that is none."""

    def __init__(self, what: str, received: object, reason: str) -> None:
        super().__init__(
            f"{what} {received!r} is not a usable memory size: {reason}. "
            'Write it as "8GiB", "8GB", "512MiB" or as a number of bytes.'
        )


class UnknownGpuError(InputError, LookupError):
    """A GPU name that matches nothing in the catalog, or more than one thing."""

    def __init__(self, received: str, *, reason: str, candidates: Sequence[str]) -> None:
        names = ", ".join(candidates)
        hint = f"Did you mean {names}? " if names else ""
        super().__init__(
            f'GPU {received!r} {reason}. {hint}A memory size such as "24GiB" works too; `memfit gpus` lists every name.'
        )
        self.candidates = tuple(candidates)


class ConfigurationError(InputError):
    """A device configuration that contradicts itself or cannot be had on this machine."""


class TooLateError(ConfigurationError, RuntimeError):
    """TensorFlow has already set its devices up, so their configuration cannot change any more."""


class BudgetTooSmallError(MemfitError):
    """Nothing that may be done makes training fit."""

    exit_code = 1


class NotExactError(InputError):
    """A plan that does not train to the same result, where the same result was asked for."""


class BrokenEnvironmentError(MemfitError):
    """TensorFlow or Keras is missing, unusable or not the one memfit works with."""

    exit_code = 3


class RecoveryWarning(UserWarning):
    """Memory ran out, and training continued with less memory; or a model trains without recovery."""


class DataWarning(UserWarning):
    """Something about the data that training goes on without: broken files, a single class."""
