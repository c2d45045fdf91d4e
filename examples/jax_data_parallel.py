# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on scikit-learn's handwritten digits with JAX and optax.

The same file runs alone (python examples/jax_data_parallel.py) and on many ranks
(halayrun -np 4 python examples/jax_data_parallel.py). The global batch is the same for any number
of ranks, so more ranks each do less.
"""

import argparse
import hashlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import halay.jax as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size have to be positive")
    return args


def load_data(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and held-out test images: a fixed split of 80 to 20."""
    digits = load_digits()
    images = digits.data.astype(np.float32) / 16
    order = np.random.default_rng(seed).permutation(len(images))
    held_out = len(images) // 5
    test, train = order[:held_out], order[held_out:]
    return (images[train], digits.target[train]), (images[test], digits.target[test])


def network(seed: int) -> list[dict[str, jax.Array]]:
    sizes = [64, 128, 64, 10]
    keys = jax.random.split(jax.random.PRNGKey(seed), len(sizes) - 1)
    return [
        {"w": jax.random.normal(key, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}
        for key, a, b in zip(keys, sizes, sizes[1:])
    ]


def logits_of(params: list[dict[str, jax.Array]], images: jax.Array) -> jax.Array:
    for layer in params[:-1]:
        images = jax.nn.relu(images @ layer["w"] + layer["b"])
    return images @ params[-1]["w"] + params[-1]["b"]


def loss_of(params: list[dict[str, jax.Array]], images: jax.Array, labels: jax.Array) -> jax.Array:
    logits = logits_of(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@jax.jit
def accuracy_of(params, images, labels):
    """Each rank looks at its shard, the counts are summed."""
    right = (logits_of(params, images).argmax(1) == labels).sum()
    counts = hvd.allreduce(jnp.stack([right, len(labels)]), name="accuracy", op=hvd.Sum)
    return counts[0] / counts[1]


def main() -> None:
    args = parse_arguments()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if args.batch_size % size != 0:
        raise SystemExit(f"--batch-size {args.batch_size} is no multiple of {size} ranks")
    (images, labels), test = load_data(args.seed)
    held_out = tuple(part[rank::size] for part in test)

    optimizer = hvd.DistributedOptimizer(optax.adam(args.lr))
    params = hvd.broadcast_parameters(network(args.seed + rank), root_rank=0)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(loss, name="loss")

    begin, accuracy = time.monotonic(), 0.0
    for epoch in range(args.epochs):
        order = np.random.default_rng(args.seed + epoch).permutation(len(images))
        losses = []
        for at in range(0, len(order) - args.batch_size + 1, args.batch_size):
            own = order[at : at + args.batch_size][rank::size]
            params, state, loss = step(params, state, images[own], labels[own])
            losses.append(loss)
        accuracy = float(accuracy_of(params, *held_out))
        if rank == 0:
            mean = float(sum(losses)) / len(losses)
            print(f"epoch {epoch + 1:2d}: loss {mean:.4f}, accuracy {accuracy:.2%}", flush=True)
    seconds = time.monotonic() - begin

    raw = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
    digests = hvd.allgather_object(hashlib.sha256(raw).hexdigest())
    if rank == 0:
        same = len(set(digests)) == 1
        print(f"ranks:       {size}")
        print(f"transport:   {hvd.transport()}")
        print(f"speed:       {args.epochs * len(images) / seconds:,.0f} images/s")
        print(f"accuracy:    {accuracy:.2%} of the held-out test images")
        print(f"parameters:  {'bit-identical on all ranks' if same else 'DIFFERENT'}", digests[0])
    if len(set(digests)) != 1:
        raise SystemExit("the parameters differ between ranks")
    hvd.shutdown()


if __name__ == "__main__":
    main()
