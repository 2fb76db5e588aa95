"""images.py FOLDER: pictures whose class can be seen, as MNIST's files, and as folders of JPEGs."""
import pathlib
import struct
import sys

import numpy
from PIL import Image

folder = pathlib.Path(sys.argv[1])
random = numpy.random.default_rng(0)
mnist = folder / "MNIST/raw"
mnist.mkdir(parents=True)
for name, count in (("train", 1024), ("t10k", 256)):
    labels = random.integers(0, 10, count).astype(numpy.uint8)
    pixels = numpy.zeros((count, 28, 28), numpy.uint8)
    for image, label in zip(pixels, labels):
        image[14 * (label % 2):14 * (label % 2) + 14, label // 2 * 5:label // 2 * 5 + 5] = 255
    for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
        (mnist / f"{name}-{kind}-ubyte").write_bytes(
            struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape) +
            values.tobytes())
for part in ("train", "val"):
    for label in range(2):
        (folder / part / str(label)).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(random.integers(0, 255, (64, 64, 3), dtype=numpy.uint8)).save(
                folder / part / str(label) / f"{number}.jpg")
