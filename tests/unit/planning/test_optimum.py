import itertools
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfit.errors import BrokenEnvironmentError, InputError, MemfitError
from memfit.planning.optimum import Schedule, Work, coarsened, of_segments, optimum


def chain(*sizes, seconds=1.0):
    return [Work(seconds, 2.0, size, (call - 1,) if call else ()) for call, size in enumerate(sizes)]


@st.composite
def graphs(draw, least=1, most=6):
    count = draw(st.integers(least, most))
    return [
        Work(
            float(draw(st.integers(0, 5))),
            float(draw(st.integers(0, 5))),
            draw(st.integers(0, 20)),
            tuple(draw(st.lists(st.integers(0, call - 1), min_size=1, max_size=2))) if call else (),
            # Small ones leave more room for choices than as much as the output.
            gradient_bytes=draw(st.sampled_from([0, 1, None])),
        )
        for call in range(count)
    ]


@st.composite
def graphs_with_segments(draw):
    work = draw(graphs(least=4))
    places = sorted(draw(st.sets(st.integers(0, len(work)), min_size=2, max_size=4)))
    return work, list(zip(places[::2], places[1::2], strict=False))


def fastest_by_trying_all(work, budget):
    """The least seconds over every choice of what runs in each stage, from the first call to the last."""
    count = len(work)
    again = [[*range(stage)] if stage < count else [*range(2 * count - stage)] for stage in range(2 * count)]
    choices = [[[c for c, on in zip(calls, bits, strict=True) if on] for bits in _bits(len(calls))] for calls in again]
    best = math.inf
    for chosen in itertools.product(*choices):
        seconds = sum(work[call].seconds for calls in chosen for call in calls)
        if seconds < best and _fits(work, chosen, budget):
            best = seconds
    return best + sum(each.seconds + each.backward_seconds for each in work)


def _bits(count):
    return itertools.product([False, True], repeat=count)


def _fits(work, chosen, budget):
    count, events = len(work), []
    for stage, again in enumerate(chosen):
        forward = [*again, stage] if stage < count else again
        events += [({("output", call)}, {("output", each) for each in work[call].inputs}) for call in forward]
        if stage >= count:
            call = 2 * count - 1 - stage
            outputs = {("output", each) for each in (call, *work[call].inputs)}
            arriving = {("gradient", call, reader) for reader in range(count) if call in work[reader].inputs}
            events.append(({("gradient", each, call) for each in work[call].inputs}, outputs | arriving))
    held = set()
    for now, (made, read) in enumerate(events):
        if not read <= held:
            return False
        held |= made
        if sum(_size(work, each) for each in held) > budget:
            return False
        held = {each for each in held if _is_read_before_it_is_made(each, events[now + 1 :])}
    return True


def _size(work, value):
    each = work[value[1]]
    return each.bytes if value[0] == "output" or each.gradient_bytes is None else each.gradient_bytes


def _is_read_before_it_is_made(value, events):
    return next((value in read for made, read in events if value in made | read), False)


def test_a_chain_that_keeps_everything_holds_all_outputs_and_two_gradients():
    # The backward call of 2 holds outputs 0 to 2, the gradient of output 2 and that of output 1, which it makes.
    assert of_segments(chain(10, 10, 10, 10), []) == Schedule(12.0, 50, optimal=True, bound_seconds=12.0)


def test_a_segment_is_recomputed_when_the_backward_pass_reaches_it():
    # Calls 0 and 1 run again, call 2 is read behind the segment and kept. When its backward call runs everything is
    # there again: outputs 0 to 2, and the gradients of 2 and 1.
    assert of_segments(chain(10, 10, 10, 10), [(0, 3)]) == Schedule(14.0, 50, optimal=False, bound_seconds=12.0)
    # With a large end the peak is there: outputs 2 and 3 and the gradient of 2, without outputs 0 and 1.
    assert of_segments(chain(10, 10, 10, 50), []).peak_bytes == 90
    assert of_segments(chain(10, 10, 10, 50), [(0, 3)]).peak_bytes == 70


def test_what_is_read_behind_a_segment_is_not_recomputed():
    work = [*chain(1, 1, 1), Work(1.0, 2.0, 1, (0, 2))]
    assert of_segments(work, [(0, 3)]).seconds == 12.0 + 1.0


def test_gradients_of_all_readers_are_held():
    work = [Work(1, 1, 10, ()), Work(1, 1, 0, (0,)), Work(1, 1, 0, (0,)), Work(1, 1, 0, (1, 2))]
    assert of_segments(work, []).peak_bytes == 30
    small = [Work(1, 1, 10, (), gradient_bytes=1), *work[1:]]
    assert of_segments(small, []).peak_bytes == 12


def test_the_optimum_of_a_chain_is_the_known_one():
    # Eight equal calls in the room of four. A backward call takes all four: its output and input and their gradients.
    # Only the first, with no gradient to read, leaves room for one more output: call 5. So the backward calls of 5 to 1
    # each run the chain again from its start, 5 + 4 + 3 + 2 + 1 calls.
    work = chain(*[1] * 8)
    assert optimum(work, 4) == Schedule(24.0 + 15.0, 4, optimal=True, bound_seconds=39.0)
    assert optimum(work, 3) is None


def test_the_cheap_output_is_recomputed_and_the_expensive_one_kept():
    cheap, expensive = Work(1.0, 1.0, 10, ()), Work(9.0, 1.0, 10, ())
    work = [cheap, expensive, Work(1, 1, 0, (0,)), Work(1, 1, 0, (1,)), Work(1, 1, 50, (2, 3)), Work(1, 1, 0, (4,))]
    # The large output and its gradient, and whatever of the two first is kept meanwhile.
    assert of_segments(work, []).peak_bytes == 100 + 20
    once = 14.0 + 6.0
    assert optimum(work, 110) == Schedule(once + 1.0, 110, optimal=True, bound_seconds=once + 1.0)
    assert optimum(work, 100) == Schedule(once + 10.0, 100, optimal=True, bound_seconds=once + 10.0)
    assert optimum(work, 99) is None
    assert optimum(work, 0) is None


def test_nothing_is_recomputed_where_everything_fits():
    work = chain(10, 10, 10, 10)
    assert optimum(work, 50) == of_segments(work, [])


@settings(deadline=None, max_examples=150)
@given(graphs_with_segments())
def test_no_segments_are_better_than_the_optimum_at_their_peak(case):
    work, segments = case
    plan = of_segments(work, segments)
    best = optimum(work, plan.peak_bytes)
    assert best is not None
    assert best.optimal
    assert best.seconds <= plan.seconds
    assert best.peak_bytes <= plan.peak_bytes
    assert best.seconds >= plan.bound_seconds


@settings(deadline=None, max_examples=150)
@given(graphs(least=3, most=3), st.integers(1, 20))
def test_the_optimum_is_what_trying_all_schedules_finds(work, missing):
    budget = of_segments(work, []).peak_bytes - missing
    best = optimum(work, budget)
    assert (math.inf if best is None else best.seconds) == fastest_by_trying_all(work, budget)


@pytest.fixture
def out_of_time(monkeypatch):
    """Makes the solver end as if its time was up: with its solution or without, and with a weaker proof."""
    import scipy.optimize

    solve = scipy.optimize.milp

    def make(found, bound):
        def milp(*args, **options):
            result = solve(*args, **options)
            result.status, result.mip_dual_bound, result.message = 1, bound, "Time limit reached."
            if not found:
                result.x = None
            return result

        monkeypatch.setattr(scipy.optimize, "milp", milp)

    return make


def test_out_of_time_gives_the_best_found_and_what_is_proved(out_of_time):
    # The bound counts in forward passes: 1.5 of them, 8 s each, and 16 s backward.
    out_of_time(found=True, bound=1.5)
    assert optimum(chain(*[1] * 8), 4) == Schedule(39.0, 4, optimal=False, bound_seconds=28.0)
    out_of_time(found=True, bound=0.5)
    assert optimum(chain(*[1] * 8), 4).bound_seconds == 24.0


def test_out_of_time_with_nothing_found_says_what_to_do(out_of_time):
    out_of_time(found=False, bound=1.0)
    with pytest.raises(MemfitError, match=r"no schedule of 8 calls within 4 bytes in 7 s.*coarsened"):
        optimum(chain(*[1] * 8), 4, seconds_limit=7)


def test_a_missing_solver_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(BrokenEnvironmentError, match=r'pip install "memfit\[solver\]"'):
        optimum(chain(*[1] * 8), 4)


@pytest.mark.parametrize("segments", [[(2, 2)], [(3, 1)], [(0, 5)], [(-1, 2)], [(0, 2), (1, 3)]])
def test_impossible_segments_are_refused(segments):
    with pytest.raises(InputError, match="is not possible"):
        of_segments(chain(1, 1, 1, 1), segments)


def test_calls_out_of_order_are_refused():
    with pytest.raises(InputError, match=r"call 0 reads \[1\]"):
        optimum([Work(1, 1, 1, (1,)), Work(1, 1, 1, ())], 1)


def test_a_small_graph_is_not_coarsened():
    work = chain(1, 2, 3)
    assert coarsened(work, 3) == (work, [0, 1, 2, 3])


def test_cuts_are_where_least_crosses_and_what_crosses_stays_alone():
    work = chain(9, 9, 1, 9, 9, 1, 9, 9)
    pieces, edges = coarsened(work, 5)
    assert edges == [0, 2, 3, 5, 6, 8]
    assert [each.bytes for each in pieces] == [18, 1, 18, 1, 18]
    assert [each.seconds for each in pieces] == [2, 1, 2, 1, 2]
    assert [each.inputs for each in pieces] == [(), (0,), (1,), (2,), (3,)]
    # What a piece holds inside has no gradient that lasts; nobody reads the last one.
    assert [each.gradient_bytes for each in pieces] == [9, 1, 9, 1, 0]


def test_a_skip_is_not_cut():
    # 0 is read by 3, so that it crosses every cut before that.
    work = [*chain(5, 5, 5), Work(1, 1, 5, (0, 2)), Work(1, 1, 5, (3,)), Work(1, 1, 5, (4,)), Work(1, 1, 5, (5,))]
    assert coarsened(work, 3)[1] == [0, 3, 4, 7]


@given(graphs(), st.integers(1, 6))
def test_coarsening_keeps_the_work(work, most):
    pieces, edges = coarsened(work, most)
    assert len(pieces) == len(edges) - 1 <= most
    assert edges == sorted(set(edges))
    assert (edges[0], edges[-1]) == (0, len(work))
    fine, coarse = of_segments(work, []), of_segments(pieces, [])
    assert coarse.seconds == fine.seconds
    assert sum(each.bytes for each in pieces) == sum(each.bytes for each in work)


def test_coarsening_to_nothing_is_refused():
    with pytest.raises(InputError, match="most=0"):
        coarsened(chain(1, 1), 0)
