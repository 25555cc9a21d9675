"""`memfit plan`: the fastest change that makes a training step fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memfit import framework
from memfit.cli.target import JIT, Batch, Card, InputShape, JitChoice, Loss, Optimizer, Policy, Target, parse_shape
from memfit.errors import InputError
from memfit.report.console import print_json, stderr, stdout
from memfit.techniques.technique import Grade
from memfit.units import parse_size

if TYPE_CHECKING:
    from memfit.planning.plan import Plan


def plan(
    target: Target,
    batch: Batch,
    budget: Annotated[str | None, typer.Option(help="The memory it has to fit, such as 8GiB.")] = None,
    input_shape: InputShape = None,
    optimizer: Optimizer = None,
    loss: Loss = None,
    policy: Policy = None,
    jit: JitChoice = "auto",
    gpu: Card = None,
    numerics: Annotated[
        Grade,
        typer.Option(help="exact: same result to rounding; close: rounded differently; any: another training."),
    ] = "exact",
    verify: Annotated[
        Literal["trace", "measure", "none"],
        typer.Option(help="Trace the planned step, or also run it here, before it is said to fit."),
    ] = "trace",
    save: Annotated[
        Path | None, typer.Option(help="Write the plan to this file, for memfit.fit.", metavar="PLAN.JSON")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --save overwrite a file.")] = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="Show what every budget costs instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the fastest change that makes a model's training step fit a memory budget, without a GPU.

    Exit code 0: a plan fits; 1: none does.
    """
    # What can be refused is refused before minutes of work.
    shape = parse_shape(input_shape)
    limit = None if budget is None else parse_size(budget, what="--budget")
    if limit is None and not sweep:
        raise InputError("--budget is missing. Write --budget 8GiB, or --sweep to see what every budget costs.")
    if save is not None:
        _refuse_to_save(save, force=force, sweep=sweep)
    framework.import_for_predicting()
    from memfit.planning.planner import Planner
    from memfit.report.plan import render_plan, render_sweep
    from memfit.trace.target import load_target

    with stderr().status(f"building {target}"):
        model = load_target(target, input_shape=shape, optimizer=optimizer, loss=loss, policy=policy)
    with stderr().status("tracing one step"):
        planner = Planner(model, batch, gpu=gpu, jit=JIT[jit])
    if limit is None or sweep:
        with stderr().status("looking at every budget"):
            front = planner.sweep(numerics=numerics)
        if as_json:
            print_json(front.to_dict())
        else:
            stdout().print(render_sweep(front))
        return
    with stderr().status("looking for the fastest plan that fits"):
        found = planner.plan(limit, numerics=numerics, verify=verify)
    if as_json:
        print_json(found.to_dict())
    else:
        keep = "the same command with --save plan.json keeps it for memfit.fit" if save is None else None
        stdout().print(render_plan(found, next_step=keep))
    if save is not None:
        _save(found, save, batch)
    raise typer.Exit(0 if found.feasible else 1)


def _refuse_to_save(path: Path, *, force: bool, sweep: bool) -> None:
    if sweep:
        raise InputError("--save writes one plan, and --sweep makes none. Leave one of them out.")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"--save {str(path)!r} must be a file in a folder that exists, such as plan.json.")
    if path.exists() and not force:
        raise InputError(f"{str(path)!r} exists already. Add --force to overwrite it, or --save another file.")


def _save(found: "Plan", path: Path, batch: int) -> None:
    if not found.feasible:
        stderr().print(f"Did not write {path}: no plan fits.", soft_wrap=True, markup=False)
        return
    found.save(path)
    stderr().print(f"Wrote {path}", soft_wrap=True, markup=False)
    next_step = f'memfit.fit(model, x, y, batch_size={batch}, plan=memfit.Plan.load("{path}"))'
    stderr().print(next_step, soft_wrap=True, markup=False)
