import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.errors import SizeError
from memfit.units import GIB, KIB, MIB, format_size, parse_size


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        ("8GiB", 8 * GIB),
        ("8 GB", 8_000_000_000),
        ("8gb", 8_000_000_000),
        ("512m", 512 * MIB),
        ("512 MiB", 512 * MIB),
        ("1.5g", 3 * GIB // 2),
        (".5 KiB", 512),
        ("100", 100),
        ("100B", 100),
        (8589934592, 8 * GIB),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_people_write(written, size_bytes):
    assert parse_size(written) == size_bytes


@pytest.mark.parametrize(
    "nonsense", ["", "GiB", "8 apples", "8GiBs", "eight", "1e9", "0", 0, -1, "-4GiB", True, 1.5, None]
)
def test_nonsense_is_refused_with_what_to_write_instead(nonsense):
    with pytest.raises(SizeError) as caught:
        parse_size(nonsense, what="limit")
    assert repr(nonsense) in str(caught.value)
    assert '"8GiB"' in str(caught.value)


def test_a_size_beyond_64_bits_is_refused():
    with pytest.raises(SizeError, match="64-bit"):
        parse_size("99999999TiB")


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (6298060800, "5.87 GiB"),
        (153995776, "147 MiB"),
        (GIB - 1, "1 GiB"),
        (10 * GIB, "10 GiB"),
        (-2 * MIB, "-2 MiB"),
        (None, "unknown"),
    ],
)
def test_sizes_people_read(size_bytes, shown):
    assert format_size(size_bytes) == shown


@given(st.integers(min_value=1, max_value=2**62))
def test_what_is_shown_reads_back_to_within_rounding(size_bytes):
    assert parse_size(format_size(size_bytes)) == pytest.approx(size_bytes, rel=0.006)


@given(st.integers(min_value=1, max_value=2**50), st.sampled_from(["b", "kib", "KB", " MiB"]))
def test_whole_numbers_are_exact(number, unit):
    factor = {"b": 1, "kib": KIB, "kb": 1000, "mib": MIB}[unit.strip().lower()]
    if number * factor < 2**63:
        assert parse_size(f"{number}{unit}") == number * factor
