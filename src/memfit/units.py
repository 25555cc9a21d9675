"""Memory sizes: what people write to bytes, and bytes to what people read.

The only place that knows GB (10^9) from GiB (2^30). Everywhere else a size is an `int` of bytes.
"""

import re
from typing import TypeAlias

from memfit.errors import SizeError

Size: TypeAlias = int | str

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

# A bare letter is binary, as in Docker, the JVM and `ulimit`; "GB" is what a disk vendor means by it.
_FACTORS = {
    "": 1,
    "b": 1,
    **dict.fromkeys(("k", "kib"), KIB),
    **dict.fromkeys(("m", "mib"), MIB),
    **dict.fromkeys(("g", "gib"), GIB),
    **dict.fromkeys(("t", "tib"), TIB),
    **{unit: 10**power for unit, power in (("kb", 3), ("mb", 6), ("gb", 9), ("tb", 12))},
}
_PATTERN = re.compile(r"\s*(-?\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_INT64_MAX = 2**63 - 1


def parse_size(size: Size, *, what: str = "size") -> int:
    """Turn `"8GiB"`, `"8 GB"`, `"512m"` or a number of bytes into bytes.

    Args:
        size: A positive number of bytes, or a string with a unit.
        what: The name of the setting, for the error message.

    Returns:
        The size in bytes, at least 1.

    Raises:
        SizeError: If it is not a size, not positive, or does not fit in 64 bits.

    Example:
        >>> parse_size("8GiB"), parse_size("8 GB"), parse_size("512m")
        (8589934592, 8000000000, 536870912)
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise SizeError(what, size, "it is neither a string nor a whole number of bytes")
    if isinstance(size, int):
        size_bytes = size
    else:
        match = _PATTERN.fullmatch(size)
        if match is None:
            raise SizeError(what, size, "it is not a number followed by a unit")
        number, unit = match.groups()
        if unit.lower() not in _FACTORS:
            raise SizeError(what, size, f"{unit!r} is not a unit of memory")
        factor = _FACTORS[unit.lower()]
        # Whole numbers stay exact; a float would lose bytes above 2^53.
        size_bytes = int(number) * factor if number.lstrip("-").isdigit() else int(float(number) * factor)
    if size_bytes <= 0:
        raise SizeError(what, size, "it must be more than zero")
    if size_bytes > _INT64_MAX:
        raise SizeError(what, size, "it is more than 64-bit arithmetic holds")
    return size_bytes


def format_size(size_bytes: int | None) -> str:
    """Write bytes the way people read them; `None` is "unknown".

    Example:
        >>> format_size(6298060800), format_size(153995776), format_size(None)
        ('5.87 GiB', '147 MiB', 'unknown')
    """
    if size_bytes is None:
        return "unknown"
    if size_bytes < 0:
        return "-" + format_size(-size_bytes)
    for factor, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # 1023.6 MiB would round to "1024 MiB"; from there on the next unit reads better.
        if size_bytes >= factor - factor // 2048:
            return f"{_three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes} B"


def _three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size_literal(size: int) -> str:
    """A size as it is written for `parse_size`, in whole units: "4GiB", "1500MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if size >> power and not size % (1 << power):
            return f"{size >> power}{unit}"
    return f"{size >> 20}MiB" if size >> 20 else str(size)
