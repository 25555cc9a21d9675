import pytest

from memfit.errors import InputError
from memfit.techniques.layer_graph import LayerCall, LayerGraph
from memfit.techniques.remat_placement import Segment, by_bytes, by_name

MIB = 2**20


def chain(*sizes):
    """A graph of calls one after the other, with outputs of these sizes."""
    calls = [LayerCall(f"layer{at}", None, (at,), (at + 1,), (size,), lambda *_: ()) for at, size in enumerate(sizes)]
    return LayerGraph(tuple(calls), (0,), (len(sizes),))


def test_equal_layers_are_cut_into_equal_segments():
    assert by_bytes(chain(*[MIB] * 12), 4)[0].start == 0
    lengths = [segment.stop - segment.start for segment in by_bytes(chain(*[MIB] * 12), 4)]
    assert max(lengths) - min(lengths) <= 2


def test_the_last_segment_is_not_recomputed():
    segments = by_bytes(chain(*[MIB] * 12), 4)
    assert len(segments) == 3
    assert segments[-1].stop < 12


def test_cuts_are_where_little_crosses():
    sizes = [64 * MIB, 64 * MIB, MIB, 64 * MIB, 64 * MIB, MIB, 64 * MIB, 64 * MIB, MIB]
    assert {segment.stop for segment in by_bytes(chain(*sizes), 3)} <= {3, 6}


def test_a_skip_counts_until_it_is_used():
    calls = [
        LayerCall("wide", None, (0,), (1,), (64 * MIB,), lambda *_: ()),
        LayerCall("narrow", None, (1,), (2,), (MIB,), lambda *_: ()),
        LayerCall("more", None, (2,), (3,), (MIB,), lambda *_: ()),
        LayerCall("joined", None, (3, 1), (4,), (MIB,), lambda *_: ()),
    ]
    graph = LayerGraph(tuple(calls), (0,), (4,))
    assert graph.last_use()[1] == 3


@pytest.mark.parametrize("count", [1, 13])
def test_impossible_numbers_are_refused(count):
    with pytest.raises(InputError, match=f"remat={count}"):
        by_bytes(chain(*[MIB] * 12), count)


def test_named_layers_that_follow_each_other_are_one_segment():
    graph = chain(*[MIB] * 6)
    assert by_name(graph, ["layer1", "layer2", "layer4"]) == [Segment(1, 3), Segment(4, 5)]


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="does not have: nobody"):
        by_name(chain(MIB), ["nobody"])


def test_a_range_is_one_segment_beside_others():
    graph = chain(*[MIB] * 8)
    assert by_name(graph, ["layer4..layer6", "layer1..layer3", "layer7"]) == [
        Segment(1, 4),
        Segment(4, 7),
        Segment(7, 8),
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["layer2..nobody"], "does not have: nobody"),
        (["layer3..layer1"], "ends before it begins"),
        (["layer1..layer3", "layer3..layer4"], "'layer3' twice"),
        (["layer1..layer3", "layer2"], "'layer2' twice"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(names, message):
    with pytest.raises(InputError, match=message):
        by_name(chain(*[MIB] * 6), names)
