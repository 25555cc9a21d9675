"""cuDNN asked without a GPU; needs `memfit[xla]`. `MEMFIT_REQUIRE_XLA=1` on CI makes its absence a failure.

The sizes are what cuDNN 9.19 said on an H200.
"""

import os
from dataclasses import replace

import pytest

from memfit.hardware import cudnn
from memfit.hardware.catalog import find_gpu
from memfit.hardware.cudnn import Problem, kernels

GENERATOR = Problem(
    kind="forward",
    dtype="f32",
    image=(64, 512, 64, 64),
    filter=(3, 512, 5, 5),
    output=(64, 3, 64, 64),
    strides=(1, 1),
    padding=(2, 2),
    dilations=(1, 1),
    channels_last=True,
    adds_bias=True,
)
STEM = Problem(
    kind="forward",
    dtype="f32",
    image=(32, 3, 224, 224),
    filter=(64, 3, 7, 7),
    output=(32, 64, 112, 112),
    strides=(2, 2),
    padding=(3, 3),
    dilations=(1, 1),
    channels_last=False,
)


@pytest.fixture(autouse=True)
def _extra(monkeypatch):
    monkeypatch.setenv("MEMFIT_CACHE", "off")
    monkeypatch.setattr(cudnn, "_ANSWERS", {})
    if cudnn._library() is None or not cudnn._needed_libraries():
        if os.environ.get("CI") and os.environ.get("MEMFIT_REQUIRE_XLA") == "1":
            pytest.fail("memfit[xla] is required here: cuDNN or cuBLAS is missing")
        pytest.skip("memfit[xla] is not installed: cuDNN or cuBLAS is missing")


def test_a_card_that_is_not_there_is_offered_the_kernels_of_one_that_is():
    first = kernels([STEM], find_gpu("H200"))[STEM][0]
    assert (first.engine, first.workspace) == (48, 122065680)


def test_a_kernel_that_adds_a_bias_is_another():
    offered = {kernel.engine: kernel.workspace for kernel in kernels([GENERATOR], find_gpu("H200"))[GENERATOR]}
    assert (offered[33], offered[26]) == (537024528, 541270048)
    assert offered[12] == pytest.approx(5106872336, rel=1e-6)


@pytest.mark.parametrize("name", ["RTX 3060", "A100 SXM4 80GB", "Tesla T4", "24GiB"])
def test_other_cards_are_described_well_enough(name):
    half = replace(STEM, dtype="f16", channels_last=True)
    found = kernels([STEM, half], find_gpu(name))
    assert found[STEM]
    assert found[half]


def test_a_convolution_that_cannot_be_is_left_out():
    impossible, of_bytes = replace(STEM, output=(32, 64, 999, 999)), replace(STEM, dtype="s8")
    found = kernels([impossible, of_bytes, STEM], find_gpu("H200"))
    assert list(found) == [STEM]
