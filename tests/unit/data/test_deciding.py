"""What a budget means, as arithmetic: no file is opened here."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as some

from memfit.data.deciding import decide
from memfit.data.facts import Measured, Split
from memfit.errors import BudgetTooSmallError
from memfit.units import GIB, KIB, MIB


def measured(*, read=0.0002, decode=0.002, encoded=100 * KIB, sample=147 * KIB):
    return Measured(
        sampled=64,
        encoded_bytes=encoded,
        decoded_bytes=900 * KIB,
        largest_bytes=3 * MIB,
        sample_bytes=sample,
        read_seconds=read,
        decode_seconds=decode,
    )


SPLITS = (Split("validation", 800, 64), Split("train", 3200, 64, shuffled=True, augmented=True))
some_measured = some.builds(
    measured,
    read=some.floats(0, 0.1),
    decode=some.floats(0.0001, 0.1),
    encoded=some.integers(1, 20 * MIB),
    sample=some.integers(1, 4 * MIB),
)
some_splits = some.lists(
    some.builds(
        Split,
        name=some.sampled_from(["train", "validation"]),
        samples=some.integers(1, 100_000),
        batch_size=some.integers(1, 256),
        augmented=some.booleans(),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda split: split.name,
)
# Small ones come often, and often hold no batch of what was measured.
some_budget = some.integers(1 * MIB, 64 * GIB) | some.integers(16 * GIB, 64 * GIB)
some_cores = some.integers(1, 64)


def layout_or_none(facts, splits, budget, cores, disk):
    try:
        return decide(facts, splits, budget, cores=cores, disk=disk)
    except BudgetTooSmallError:
        return None


@given(some_measured, some_splits, some_budget, some_cores, some.booleans())
def test_nothing_that_is_decided_exceeds_the_budget(facts, splits, budget, cores, disk):
    layout = layout_or_none(facts, splits, budget, cores, disk)
    assume(layout is not None)
    assert layout.ram_bytes <= budget
    for decision in layout.decisions:
        assert 0 <= decision.cached_samples <= decision.split.samples
        assert min(decision.prefetch, decision.parallel_batches, decision.parallel_decodes) >= 1


@example(
    measured(read=0.0, decode=0.0625, encoded=1, sample=4151503),
    [Split(name="train", samples=71, batch_size=71, augmented=False)],
    10_258_012_355,
    10_258_341_448,
    44,
    False,
)
@given(some_measured, some_splits, some_budget, some_budget, some_cores, some.booleans())
def test_a_larger_budget_never_gives_a_worse_cache(facts, splits, one, other, cores, disk):
    small, large = sorted((one, other))
    with_small = layout_or_none(facts, splits, small, cores, disk)
    assume(with_small is not None)
    with_large = layout_or_none(facts, splits, large, cores, disk)
    assert with_large is not None
    assert with_large.saved_seconds >= with_small.saved_seconds - 1e-5
    for before, after in zip(with_small.decisions, with_large.decisions, strict=True):
        assert after.prefetch >= before.prefetch
        assert after.parallel_decodes * after.parallel_batches >= before.parallel_decodes * before.parallel_batches


@given(some_measured, some_splits, some_cores)
def test_the_budget_that_is_called_enough_is(facts, splits, cores):
    least = decide(facts, splits, 2**50, cores=cores)
    enough = decide(facts, splits, least.enough_budget, cores=cores)
    assert all(each.cached_samples == each.split.samples for each in enough.decisions)
    assert {each.cache for each in enough.decisions} == {"decoded"}


def test_everything_is_cached_decoded_when_it_fits():
    layout = decide(measured(), SPLITS, 4 * GIB, cores=8)
    assert [each.cache for each in layout.decisions] == ["decoded", "decoded"]
    assert layout.of("train").cache_bytes == 3200 * 147 * KIB


def test_validation_is_cached_whole_before_a_part_of_training_is():
    layout = decide(measured(), SPLITS, 384 * MIB, cores=2)
    validation, train = layout.decisions
    assert (validation.cache, validation.cached_samples) == ("decoded", 800)
    assert train.cache == "decoded"
    assert 0 < train.cached_samples < 3200


def test_files_that_are_slow_to_read_are_kept_as_they_are():
    slow = measured(read=0.05, decode=0.001, encoded=20 * KIB)
    layout = decide(slow, SPLITS, 320 * MIB, cores=2)
    assert layout.of("train").cache == "encoded"


def test_the_disk_is_used_when_it_is_allowed_and_memory_does_not_do():
    layout = decide(measured(), SPLITS, 384 * MIB, cores=2, disk=True)
    assert layout.of("train").cache == "disk"
    assert layout.of("train").disk_bytes == 3200 * 147 * KIB
    assert decide(measured(), SPLITS, 4 * GIB, cores=2, disk=True).of("train").cache == "decoded"


def test_a_small_budget_slows_the_pipeline_down_before_it_is_refused():
    fast, slow = decide(measured(), SPLITS, GIB, cores=8), decide(measured(), SPLITS, 180 * MIB, cores=8)
    assert fast.of("train").parallel_decodes == 8
    assert slow.of("train").parallel_decodes < 8


def test_a_budget_below_one_batch_is_refused_with_what_is_needed():
    with pytest.raises(BudgetTooSmallError, match=r"1 MiB is less .* without any cache: \d+ MiB.*batch_size"):
        decide(measured(), SPLITS, MIB, cores=2)
