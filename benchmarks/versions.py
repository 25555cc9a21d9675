"""Which versions a result was measured with."""

from memfit.framework import installed_version, tensorflow_distribution


def versions() -> dict[str, str | None]:
    """The versions of TensorFlow, under whatever name it is installed, and of Keras."""
    return {"tensorflow": (tensorflow_distribution() or (None, None))[1], "keras": installed_version("keras")}
