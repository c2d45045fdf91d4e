# SPDX-License-Identifier: Apache-2.0
"""The data of horovod-examples: horovod_examples_data.py FOLDER

MNIST/raw: ten patterns under noise, in MNIST's format; keras/: the same for tf_keras, whose own
file has a known checksum. train/ and val/: small pictures of noise."""

import struct
import sys
from pathlib import Path

import numpy as np
from PIL import Image

folder, made = Path(sys.argv[1]), np.random.default_rng(1)
patterns = made.integers(0, 2, (10, 28, 28)) * 160
(folder / "MNIST/raw").mkdir(parents=True)
for name, n in (("train", 2000), ("t10k", 400)):
    labels = made.integers(0, 10, n).astype(np.uint8)
    images = (patterns[labels] + made.integers(0, 96, (n, 28, 28))).astype(np.uint8)
    files = (("images-idx3", (2051, n, 28, 28), images), ("labels-idx1", (2049, n), labels))
    for kind, head, what in files:
        path = folder / f"MNIST/raw/{name}-{kind}-ubyte"
        path.write_bytes(struct.pack(f">{len(head)}I", *head) + what.tobytes())
(folder / "keras").mkdir()
labels = made.integers(0, 10, 2000).astype(np.uint8)
images = (patterns[labels] + made.integers(0, 96, (2000, 28, 28))).astype(np.uint8)
np.savez(folder / "keras/mnist.npz", x=images, y=labels)
(folder / "keras/sitecustomize.py").write_text('''
import importlib.abc, importlib.machinery, pathlib, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "tf_keras.src.datasets.mnist":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            import numpy
            execute(module)
            made = numpy.load(pathlib.Path(__file__).with_name("mnist.npz"))
            module.load_data = lambda path=None: ((made["x"], made["y"]),) * 2

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
''')
for part, n in (("train", 10), ("val", 2)):
    for label in "ab":
        (folder / part / label).mkdir(parents=True)
        for i in range(n):
            pixels = made.integers(0, 256, (32, 32, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / part / label / f"{i}.png")
