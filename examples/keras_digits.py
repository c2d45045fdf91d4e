# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on scikit-learn's handwritten digits with Keras 3.

Runs on TensorFlow, JAX and torch (KERAS_BACKEND), alone (python examples/keras_digits.py) and on
many ranks (halayrun -np 4 python examples/keras_digits.py). The global batch is the same for any
number of ranks, so more ranks each do less.
"""

import argparse
import hashlib
import time

import keras
import numpy as np
from sklearn.datasets import load_digits

import halay.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--checkpoint", default="digits.keras", help="written by rank 0")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size have to be positive")
    return args


def load_data(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and held-out test images: a fixed split of 80 to 20."""
    digits = load_digits()
    images = digits.images[..., np.newaxis].astype(np.float32) / 16
    order = np.random.default_rng(seed).permutation(len(images))
    held_out = len(images) // 5
    test, train = order[:held_out], order[held_out:]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    args = parse_arguments()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if args.batch_size % size != 0:
        raise SystemExit(f"--batch-size {args.batch_size} is no multiple of {size} ranks")
    (images, labels), test = load_data(args.seed)
    whole = len(images) // args.batch_size * args.batch_size  # as many batches on all ranks

    keras.utils.set_random_seed(args.seed + rank)
    model = network()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(args.lr)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(args.lr, warmup_epochs=2),
    ]
    begin = time.monotonic()
    history = model.fit(
        images[:whole][rank::size],
        labels[:whole][rank::size],
        batch_size=args.batch_size // size,
        epochs=args.epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    ).history
    seconds = time.monotonic() - begin

    guesses = np.argmax(model.predict(test[0][rank::size], verbose=0), 1)
    right = np.array([(guesses == test[1][rank::size]).sum(), len(guesses)])
    right, all_ = np.asarray(hvd.allreduce(right, op=hvd.Sum))
    raw = b"".join(weight.tobytes() for weight in model.get_weights())
    digests = hvd.allgather_object(hashlib.sha256(raw).hexdigest())
    if rank == 0:
        model.save(args.checkpoint)
        for epoch, loss in enumerate(history["loss"]):
            print(f"epoch {epoch + 1:2d}: loss {loss:.4f}")
        same = len(set(digests)) == 1
        print(f"back end:    {keras.backend.backend()}")
        print(f"ranks:       {size}")
        print(f"transport:   {hvd.transport()}")
        print(f"speed:       {args.epochs * whole / seconds:,.0f} images/s")
        print(f"accuracy:    {right / all_:.2%} of the held-out test images")
        print(f"parameters:  {'bit-identical on all ranks' if same else 'DIFFERENT'}", digests[0])
    if len(set(digests)) != 1:
        raise SystemExit("the parameters differ between ranks")
    hvd.shutdown()


if __name__ == "__main__":
    main()
