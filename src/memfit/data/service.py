"""`serve`: the same pipeline on tf.data service, so that other processes or machines decode for this one.

Everything that moves data is TensorFlow's own: a dispatcher, workers, and `tf.data.experimental.service.distribute`.
Each sample is handed out once per epoch; with several workers their order depends on who is faster.
"""

import os
import subprocess
import sys
import weakref
from typing import Any

from memfit.data.feed import attach, feed_of, lineage, made_here
from memfit.data.graph import as_written
from memfit.data.pipeline import Recipe, contents_of, decoded, finisher, path_rows, with_options
from memfit.errors import InputError
from memfit.framework import tensorflow

_UNREADABLE = "memfit.data cannot read one of"
_WORKER_MODULE = "memfit.data.worker"


def serve(dataset: Any, *, workers: int = 2, address: str | None = None) -> Any:
    """Have a pipeline run by tf.data service.

    Args:
        dataset: What `image_folder`, `images` or `bounded` returned, or any other `tf.data.Dataset`.
        workers: How many worker processes to start here, with a dispatcher in this process; they end with the data set.
        address: The dispatcher of a cluster that runs already, such as "10.0.0.5:5050"; nothing is started then.
            Its workers must see the files under the same paths.

    Returns:
        A `tf.data.Dataset` of the same batches. Caches in memory stay behind: they belong to this process.

    Raises:
        InputError: If the pipeline has Python functions, which other processes do not have.
    """
    tf = tensorflow()
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(f"dataset is a {type(dataset).__name__}; expected a tf.data.Dataset.")
    if address is None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers={workers!r} must be a whole number from 1 on, or give the address of a cluster.")
    portable = _portable(dataset)
    _refuse_python(dataset if portable is None else portable)
    servers = _Servers(workers) if address is None else None
    target = servers.address if servers is not None else str(address)
    service = tf.data.experimental.service
    with tf.device("CPU:0"):
        served = (dataset if portable is None else portable).apply(
            service.distribute(
                processing_mode=service.ShardingPolicy.DYNAMIC,
                service=target if "://" in target else f"grpc://{target}",
            )
        )
        served = served.prefetch(1)
    # As long as somebody can iterate it, its servers live.
    served._memfit_servers = servers
    return _described(served, dataset)


def _described(served: Any, dataset: Any) -> Any:
    try:
        feed = feed_of(dataset)
    except InputError:
        return served
    for name in ("class_names", "file_paths"):
        if hasattr(dataset, name):
            setattr(served, name, getattr(dataset, name))
    return attach(served, feed)


def _portable(dataset: Any) -> Any:
    """Our own pipeline without what cannot leave this process; `None` for one that is not ours as it is."""
    try:
        feed = feed_of(dataset)
    except InputError:
        return None
    if feed.recipe is None:
        return None
    if not made_here(dataset):
        raise InputError(
            "this data set was made from one of memfit.data by further steps, and its cache is in this process's "
            "memory. Serve what memfit.data returned, and add the steps to what serve returns."
        )
    return _without_caches(feed.recipe)


def _without_caches(recipe: Recipe) -> Any:
    tf, decision = tensorflow(), recipe.decision
    if recipe.augmentation is not None and recipe.augmentation.kind == "python":
        _refuse(f"augment {recipe.augmentation.name!r} is a Python function")
    with tf.device("CPU:0"):
        paths = path_rows(recipe)
        read, finish = contents_of(paths), finisher(recipe, paths)
        numbers = tf.data.Dataset.range(len(recipe.source.files))
        if recipe.shuffle:
            # Numbers, not pictures: a worker shuffles those it is given.
            numbers = numbers.shuffle(len(recipe.source.files), seed=recipe.seed)

        def batch(indices: Any) -> Any:
            came, parts = decoded(recipe, indices, lambda index: recipe.source.decode(read(index)))
            if not recipe.skip_broken:
                whole = tf.debugging.Assert(tf.size(came) == tf.size(indices), [_UNREADABLE, tf.gather(paths, indices)])
                with tf.control_dependencies([whole]):
                    came = tf.identity(came)
            key = tf.random.uniform([], maxval=tf.int64.max, dtype=tf.int64)
            return finish(came, parts, key)

        batches = numbers.batch(decision.split.batch_size).map(
            as_written(batch), num_parallel_calls=decision.parallel_batches
        )
        return with_options(batches.prefetch(decision.prefetch), recipe.ram_budget)


def _refuse_python(dataset: Any) -> None:
    """Python functions are called through a registry of the process that traced them."""
    for each in lineage(dataset):
        for function in each._functions():
            graph = function.function.graph.as_graph_def()
            nodes = [*graph.node, *[node for inner in graph.library.function for node in inner.node_def]]
            if any(node.op in ("PyFunc", "EagerPyFunc", "PyFuncStateless") for node in nodes):
                _refuse("the pipeline calls a Python function")


def _refuse(what: str) -> None:
    raise InputError(
        f"{what}, which the processes of tf.data service do not have. Write it with TensorFlow operations, or map it "
        "over what serve returns."
    )


class _Servers:
    """A dispatcher here and workers in processes of their own, which end when nobody uses them any more."""

    def __init__(self, workers: int) -> None:
        service = tensorflow().data.experimental.service
        self._dispatcher = service.DispatchServer()
        self.address = str(self._dispatcher.target).partition("://")[2]
        # The devices are this process's: a worker decodes, and must not take a GPU's memory.
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", _WORKER_MODULE, self.address], env=environment, stdin=subprocess.PIPE
            )
            for _ in range(workers)
        ]
        self.stop = weakref.finalize(self, _stop, processes)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
