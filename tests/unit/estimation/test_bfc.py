from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfit.estimation.bfc import BFC, OutOfMemory
from memfit.units import GIB, KIB, MIB


def pool(limit=GIB):
    """An allocator that has the whole limit at once, as without memory growth."""
    return BFC(limit, growth=False)


def growing(limit=64 * GIB):
    return BFC(limit, growth=True)


def holes(allocator, *sizes):
    """Make free chunks of these sizes, in this order of addresses, with something in use after each."""
    made = []
    for size in sizes:
        made.append(allocator.allocate(size))
        allocator.allocate(256)
    for address in made:
        allocator.free(address)
    return made


@pytest.mark.parametrize(("requested", "counted"), [(1, 256), (255, 256), (256, 256), (257, 512), (MIB, MIB)])
def test_requests_are_rounded_up_to_256_bytes(requested, counted):
    allocator = pool()
    assert allocator.chunk_size(allocator.allocate(requested)) == counted
    assert allocator.in_use == allocator.peak == counted


def test_an_empty_request_takes_nothing():
    allocator = pool()
    assert allocator.allocate(0) is None
    allocator.free(None)
    assert (allocator.in_use, allocator.peak, allocator.reserved) == (0, 0, 0)


@pytest.mark.parametrize(
    ("hole", "requested", "chunk"),
    [
        (2 * MIB, MIB, MIB),  # exactly twice as large: split
        (2 * MIB - 256, MIB, 2 * MIB - 256),  # less than that: given whole
        (400 * MIB, 272 * MIB, 272 * MIB),  # 128 MiB left over: split though less than twice as large
        (400 * MIB, 272 * MIB + 256, 400 * MIB),  # less left over: given whole
    ],
)
def test_a_chunk_is_split_when_half_of_it_or_128_mib_would_be_left(hole, requested, chunk):
    allocator = pool()
    (address,) = holes(allocator, hole)
    assert allocator.allocate(requested) == address
    assert allocator.chunk_size(address) == chunk


def test_what_is_left_of_a_split_lies_above():
    allocator = pool()
    (address,) = holes(allocator, 4 * MIB)
    assert allocator.allocate(MIB) == address
    assert allocator.allocate(2 * MIB) == address + MIB


def test_the_smallest_chunk_that_fits_is_taken():
    allocator = pool()
    _, fitting, _ = holes(allocator, 8 * MIB, 3 * MIB, 2 * MIB)
    assert allocator.allocate(2 * MIB + 1) == fitting


def test_of_equal_chunks_the_lowest_address_is_taken():
    allocator = pool()
    first, second = holes(allocator, MIB, MIB)
    assert allocator.allocate(MIB) == first
    assert allocator.allocate(MIB) == second


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_a_freed_chunk_merges_with_both_neighbours(order):
    allocator = pool()
    chunks = [allocator.allocate(MIB) for _ in range(3)]
    allocator.allocate(MIB)
    for number in order:
        allocator.free(chunks[number])
    assert allocator.allocate(3 * MIB) == chunks[0]
    assert allocator.chunk_size(chunks[0]) == 3 * MIB


def test_chunks_with_something_in_use_between_them_do_not_merge():
    allocator = pool(4 * MIB)
    first, _, third, _ = (allocator.allocate(MIB) for _ in range(4))
    allocator.free(first)
    allocator.free(third)
    with pytest.raises(OutOfMemory):
        allocator.allocate(2 * MIB)


def test_without_growth_the_first_allocation_takes_the_whole_limit():
    allocator = pool(10 * GIB)
    assert allocator.reserved == 0
    allocator.allocate(1)
    assert allocator.reserved == 10 * GIB
    assert allocator.in_use == 256


def test_regions_double_from_2_mib():
    allocator = growing()
    reserved = []
    for _ in range(62):
        allocator.allocate(MIB)
        reserved.append(allocator.reserved // MIB)
    assert sorted(set(reserved)) == [2, 2 + 4, 2 + 4 + 8, 2 + 4 + 8 + 16, 2 + 4 + 8 + 16 + 32]


def test_a_region_enlarged_for_a_request_is_not_doubled_again():
    allocator = growing()
    reserved = []
    for size in (10, 16, 16):  # enlarged to 16; the same size again; doubled since
        allocator.allocate(size * MIB)
        reserved.append(allocator.reserved // MIB)
    assert reserved == [16, 32, 64]


def test_regions_never_merge():
    allocator = growing()
    chunks = [allocator.allocate(size * MIB) for size in (2, 4)]
    for address in chunks:
        allocator.free(address)
    allocator.allocate(6 * MIB)
    assert allocator.reserved == (2 + 4 + 8) * MIB


def test_a_growing_pool_gives_away_what_it_would_not_split():
    allocator = growing()
    allocator.allocate(5 * MIB)
    assert allocator.in_use == 8 * MIB


def test_the_last_region_is_what_the_limit_leaves():
    allocator = growing(20 * MIB)
    for size in (2, 4, 8, 6):
        allocator.allocate(size * MIB)
    assert allocator.reserved == allocator.in_use == 20 * MIB


@pytest.mark.parametrize("growth", [False, True])
def test_a_request_that_does_not_fit_is_refused_and_changes_nothing(growth):
    allocator = BFC(64 * MIB, growth=growth)
    held = allocator.allocate(40 * MIB)
    before = (allocator.in_use, allocator.peak, allocator.reserved)
    with pytest.raises(OutOfMemory) as refused:
        allocator.allocate(65 * MIB - 100)
    assert refused.value.requested == 65 * MIB
    assert (allocator.in_use, allocator.peak, allocator.reserved) == before
    allocator.free(held)
    allocator.allocate(64 * MIB if not growth else 40 * MIB)


def test_the_peak_restarts_from_what_is_in_use():
    allocator = pool()
    kept = allocator.allocate(MIB)
    allocator.free(allocator.allocate(8 * MIB))
    assert allocator.peak == 9 * MIB
    allocator.reset_peak()
    assert allocator.peak == allocator.chunk_size(kept) == MIB


sizes = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 64 * MIB), st.sampled_from([256, MIB, 2 * MIB, 128 * MIB]))
# A size is an allocation; `None` with a position frees one of those alive.
programs = st.lists(st.tuples(st.one_of(sizes, st.none()), st.integers(0, 1000)), max_size=80)


def play(program, allocator):
    """Play a program; yields what is alive after each event, as address and requested bytes."""
    live = {}
    for size, position in program:
        if size is not None:
            try:
                address = allocator.allocate(size)
            except OutOfMemory:
                continue
            assert address not in live
            live[address] = size
        elif live:
            address = sorted(live)[position % len(live)]
            del live[address]
            allocator.free(address)
        yield live


@given(programs, st.booleans(), st.sampled_from([100 * MIB, 4 * GIB]))
def test_bytes_in_use_are_the_chunks_alive(program, growth, limit):
    allocator = BFC(limit, growth=growth)
    for live in play(program, allocator):
        assert allocator.in_use == sum(allocator.chunk_size(address) for address in live)
        assert all(allocator.chunk_size(address) >= size for address, size in live.items())
        assert allocator.in_use <= allocator.peak <= allocator.reserved <= limit


@given(programs, st.booleans())
def test_no_two_allocations_overlap(program, growth):
    allocator = BFC(4 * GIB, growth=growth)
    for live in play(program, allocator):
        ends = 0
        for address in sorted(live):
            assert address >= ends
            ends = address + allocator.chunk_size(address)


@given(programs, st.booleans())
def test_freeing_everything_leaves_one_free_chunk_for_each_region(program, growth):
    allocator = BFC(4 * GIB, growth=growth)
    live = {}
    for live in play(program, allocator):  # noqa: B007 - the last state is what counts
        pass
    for address in live:
        allocator.free(address)
    assert allocator.in_use == 0
    for size in region_sizes(program, growth):
        assert allocator.chunk_size(allocator.allocate(size)) == size
    assert allocator.in_use == allocator.reserved == sum(region_sizes(program, growth))


def region_sizes(program, growth):
    """The regions a pool takes for a program, seen from outside: each rise of what it has reserved."""
    allocator, taken = BFC(4 * GIB, growth=growth), [0]
    for _ in play(program, allocator):
        taken.append(allocator.reserved)
    return [after - before for before, after in pairwise(taken) if after > before]
