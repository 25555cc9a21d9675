import pytest

from memfit.errors import SizeError, UnknownGpuError
from memfit.hardware.catalog import catalog, find_gpu
from memfit.units import GIB, MIB

CORES_PER_MULTIPROCESSOR = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("3060", "GeForce RTX 3060"),
        ("RTX 3060", "GeForce RTX 3060"),
        ("rtx3060 12gb", "GeForce RTX 3060"),
        ("3060 8 GB", "GeForce RTX 3060 8GB"),
        ("3060ti", "GeForce RTX 3060 Ti"),
        ("4070 ti super", "GeForce RTX 4070 Ti SUPER"),
        ("4060ti 16g", "GeForce RTX 4060 Ti 16GB"),
        ("gtx1080ti", "GeForce GTX 1080 Ti"),
        ("a100-80", "A100 SXM4 80GB"),
        ("A100 40GB", "A100 SXM4 40GB"),
        ("v100-32gb", "Tesla V100 SXM2 32GB"),
        ("t4", "Tesla T4"),
        ("T4 16GB", "Tesla T4"),
        ("h100", "H100 SXM5"),
        ("l40s", "L40S"),
        ("A6000", "RTX A6000"),
        ("6000 ada", "RTX 6000 Ada Generation"),
        # What the driver calls them.
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "GeForce RTX 3060 Laptop GPU"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16GB"),
        ("Tesla P100-PCIE-16GB", "Tesla P100 PCIe 16GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA GH200 480GB", "GH200 480GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
    ],
)
def test_forgiving_lookup(written, name):
    assert find_gpu(written).name == name


def test_every_card_is_found_by_its_own_name():
    for gpu in catalog():
        assert find_gpu(gpu.name) is gpu
        assert find_gpu(f"NVIDIA {gpu.name}".upper()) is gpu


def test_the_catalog_covers_what_people_train_on():
    assert len(catalog()) >= 50
    assert len({gpu.name for gpu in catalog()}) == len(catalog())


def test_the_rates_of_each_card_agree_with_its_cores_and_clock():
    for gpu in catalog():
        cores = gpu.multiprocessors * CORES_PER_MULTIPROCESSOR.get(gpu.compute_capability, 128)
        assert gpu.fp32_flops == pytest.approx(2 * cores * gpu.clock_hz, rel=0.01), gpu.name


@pytest.mark.parametrize(
    ("name", "logged_mib"),
    # "Created device … with N MB memory" in public start-up logs of idle cards.
    [
        ("T4", 13757),
        ("V100 16GB", 14648),
        ("P100", 15405),
        ("L4", 20967),
        ("RTX 3090", 22446),
        ("A100 40GB", 38366),
        ("A100 80GB", 79197),
        ("H100", 78763),
        ("H200", 140829),
    ],
)
def test_the_default_limit_is_what_tensorflow_logs(name, logged_mib):
    assert find_gpu(name).default_limit / MIB == pytest.approx(logged_mib, rel=0.015)


@pytest.mark.parametrize("size", ["24GiB", "24 gib", 24 * GIB])
def test_a_memory_size_is_a_gpu_of_which_nothing_else_is_known(size):
    gpu = find_gpu(size)
    assert gpu.memory == 24 * GIB
    assert gpu.default_limit < 24 * GIB
    assert (gpu.compute_capability, gpu.bandwidth, gpu.fp32_flops, gpu.tf32_flops) == (None, None, None, None)


def test_tf32_exists_from_ampere_on():
    assert find_gpu("2080 ti").tf32_flops is None
    assert find_gpu("a100-80").tf32_flops == pytest.approx(156e12, rel=0.01)


@pytest.mark.parametrize(("written", "suggested"), [("3061", "GeForce RTX 3060"), ("rtx 9090", "GeForce RTX 4090")])
def test_an_unknown_name_gets_the_nearest_ones(written, suggested):
    with pytest.raises(UnknownGpuError) as caught:
        find_gpu(written)
    assert suggested in caught.value.candidates
    assert suggested in str(caught.value)


@pytest.mark.parametrize(("written", "candidates"), [("A100", 4), ("v100", 3), ("5060 ti", 2)])
def test_a_name_with_several_memory_sizes_is_not_guessed(written, candidates):
    with pytest.raises(UnknownGpuError, match="could be several cards") as caught:
        find_gpu(written)
    assert len(caught.value.candidates) == candidates


@pytest.mark.parametrize("written", ["", " ", "NVIDIA", "GeForce RTX", "16", "!!"])
def test_words_that_name_no_card_match_none(written):
    with pytest.raises(UnknownGpuError):
        find_gpu(written)


@pytest.mark.parametrize("size", ["-4GiB", "0g", 0, -5])
def test_an_impossible_memory_size_is_refused(size):
    with pytest.raises(SizeError):
        find_gpu(size)
