"""The card in this machine."""

from memfit import framework
from memfit.errors import InputError
from memfit.hardware.catalog import GPU, find_gpu
from memfit.hardware.nvml import read_nvml


def card_here() -> GPU | None:
    """The first GPU of this machine; one of its size where the catalog does not know it."""
    for reading in read_nvml().gpus:
        if reading.total:
            try:
                return find_gpu(reading.name)
            except InputError:
                return find_gpu(reading.total)
    # NVML may be missing where TensorFlow has what it needs.
    config = framework.tensorflow().config
    for device in config.list_physical_devices("GPU"):
        try:
            return find_gpu(config.experimental.get_device_details(device).get("device_name", ""))
        except InputError:
            return None
    return None
