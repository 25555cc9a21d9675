"""`explain`, `layout` and `skipped`: what was decided about a data set, and what was left out of it."""

from typing import Any

from memfit.data.facts import Bounds, Broken, Layout
from memfit.data.feed import feed_of


def explain(dataset: Any) -> None:
    """Print what was decided about a data set, why, what it takes, and what it would take to do better.

    Args:
        dataset: What `image_folder`, `images` or `bounded` returned, or something made from it.
    """
    from memfit.report.console import stdout
    from memfit.report.data import render_data

    feed = feed_of(dataset)
    stdout().print(render_data(feed.facts, feed.skipped()))


def layout(dataset: Any) -> Layout | Bounds:
    """What `explain` prints, as data."""
    return feed_of(dataset).facts


def skipped(dataset: Any) -> tuple[Broken, ...]:
    """The files that are left out, each with the reason, as far as they are known by now."""
    return feed_of(dataset).skipped()
