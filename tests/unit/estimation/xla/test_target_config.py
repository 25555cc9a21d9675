import dataclasses
import re

import pytest

from memfit.estimation.xla.target_config import multiprocessors_of, target_config
from memfit.hardware.catalog import GPU, catalog, find_gpu
from memfit.units import GIB


def field(text, name):
    found = re.search(rf"\b{name}: (\S+)", text)
    return found[1] if found else None


def test_a_catalog_card_is_described_by_its_own_numbers():
    text = target_config(find_gpu("H200"))
    assert field(text, "core_count") == "132"
    assert field(text, "clock_rate_ghz") == "1.98"
    assert field(text, "memory_bandwidth") == "4800000000000"
    assert field(text, "shared_memory_per_block_optin") == "232448"
    assert field(text, "feature_extension") == "ACCELERATED_FEATURES"


def test_the_memory_of_the_card_is_what_xla_may_fill():
    gpu = find_gpu("A100 SXM4 80GB")
    assert field(target_config(gpu), "device_memory_size") == str(gpu.memory)
    assert field(target_config(dataclasses.replace(gpu, memory=GIB)), "device_memory_size") == str(GIB)


def test_a_card_of_which_only_the_memory_is_known_is_taken_for_ampere():
    text = target_config(GPU(name="a card of 24 GiB", memory=24 * GIB))
    assert field(text, "device_memory_size") == str(24 * GIB)
    assert (field(text, "major"), field(text, "minor")) == ("8", "0")
    assert field(text, "core_count") == "108"


def test_a_generation_newer_than_the_table_gets_the_newest_limits():
    newer = GPU(name="next", memory=GIB, compute_capability=(13, 0))
    assert field(target_config(newer), "threads_per_core_limit") == "1536"


@pytest.mark.parametrize("gpu", catalog(), ids=lambda gpu: gpu.name)
def test_every_card_of_the_catalog_has_a_complete_description(gpu):
    text = target_config(gpu)
    assert "None" not in text
    assert text.count("{") == text.count("}")
    assert multiprocessors_of(gpu) == gpu.multiprocessors
