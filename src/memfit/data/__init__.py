"""Image pipelines that keep to a RAM budget and off the GPU.

`image_folder` and `images` make data sets from pictures, `bounded` puts bounds on one you have, `explain` says what was
decided and why, and `serve` puts a pipeline onto other processes or machines.
"""

from memfit.data.bounded import bounded
from memfit.data.explained import explain, layout, skipped
from memfit.data.pictures import image_folder, images
from memfit.data.service import serve

__all__ = ["bounded", "explain", "image_folder", "images", "layout", "serve", "skipped"]
