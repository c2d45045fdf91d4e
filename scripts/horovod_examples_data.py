# SPDX-License-Identifier: Apache-2.0
"""The data of horovod-examples: horovod_examples_data.py FOLDER

MNIST/raw: ten patterns under noise, in MNIST's format. train/ and val/: small pictures of noise."""

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
for part, n in (("train", 10), ("val", 2)):
    for label in "ab":
        (folder / part / label).mkdir(parents=True)
        for i in range(n):
            pixels = made.integers(0, 256, (32, 32, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / part / label / f"{i}.png")
