import re

from hypothesis import given
from hypothesis import strategies as st

from memfit.report.stairs import Dot, stairs_svg
from memfit.units import GIB

sizes = st.integers(1, 2**45)
percents = st.floats(-99, 10_000)


def numbers(svg, name):
    return [float(value) for value in re.findall(rf"{name}='([\d.-]+)'", svg)]


@given(st.lists(st.tuples(sizes, percents), min_size=1, max_size=12))
def test_every_dot_is_inside_the_drawing(points):
    svg = stairs_svg([Dot(budget, percent, True, "") for budget, percent in points])
    assert all(56 <= value <= 530 for value in numbers(svg, "cx"))
    assert all(32 <= value <= 206 for value in numbers(svg, "cy"))


def test_more_budget_is_to_the_right_and_more_time_is_up():
    svg = stairs_svg([Dot(2 * GIB, 65, True, "small"), Dot(6 * GIB, -31, False, "large")])
    (small, large), (slow, fast) = numbers(svg, "cx"), numbers(svg, "cy")
    assert small < large
    assert slow < fast  # SVG counts from the top


def test_axes_are_labelled_with_round_values():
    svg = stairs_svg([Dot(2 * GIB, 65, True, ""), Dot(6 * GIB, -31, True, "")])
    labels = re.findall(r">([^<>]+)</text>", svg)
    assert labels == [
        "2 GiB",
        "3 GiB",
        "4 GiB",
        "5 GiB",
        "6 GiB",
        "budget",
        "time of a step",
        "-20 %",
        "plain",
        "+20 %",
        "+40 %",
        "+60 %",
    ]


def test_what_is_not_exact_is_pale():
    svg = stairs_svg([Dot(GIB, 0, True, ""), Dot(2 * GIB, 0, False, "")])
    exact, other = re.findall(r"<circle [^>]*fill='(#\w+)'", svg)
    assert int(other[1:3], 16) > int(exact[1:3], 16)
