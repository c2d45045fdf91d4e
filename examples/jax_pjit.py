# SPDX-License-Identifier: Apache-2.0
"""A network whose weights and batches are spread over all processes, by JAX's own jit and sharding.

    JAX_CPU_COLLECTIVES_IMPLEMENTATION=mpi MPITRAMPOLINE_LIB=.../libhalay_mpi.so \\
        halayrun -np 4 python examples/jax_pjit.py

The collectives are JAX's own; Halay carries them (docs/jax_collectives.md). halay.jax is here only
to tell JAX which processes there are. Half of the processes share a batch, each pair the weights;
with an odd number all share the batch.
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

import halay.jax as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps has to be positive")
    return args


def spread(whole: np.ndarray, mesh: Mesh, axes: P) -> jax.Array:
    """An array of which each process keeps its part."""
    return jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, axes), lambda index: whole[index]
    )


def loss_of(weights, images, labels):
    hidden = jnp.tanh(images @ weights["in"])
    scores = jax.nn.log_softmax(hidden @ weights["out"])
    return -jnp.take_along_axis(scores, labels[:, None], 1).mean(), scores


def main() -> None:
    args = parse_arguments()
    if os.environ.get("JAX_CPU_COLLECTIVES_IMPLEMENTATION") != "mpi":
        raise SystemExit(
            "set JAX_CPU_COLLECTIVES_IMPLEMENTATION=mpi, and MPITRAMPOLINE_LIB to the path of "
            "libhalay_mpi.so: docs/jax_collectives.md"
        )
    hvd.distributed.initialize()
    devices = jax.devices()
    columns = 2 if len(devices) % 2 == 0 else 1
    mesh = Mesh(np.array(devices).reshape(-1, columns), ("batch", "model"))

    digits = load_digits()
    whole = len(digits.data) // 64 * 64
    images = spread(digits.data[:whole].astype(np.float32) / 16, mesh, P("batch", None))
    labels = spread(digits.target[:whole], mesh, P("batch"))
    random = np.random.default_rng(0)
    weights = {
        "in": spread(random.normal(0, 0.2, (64, 128)).astype(np.float32), mesh, P(None, "model")),
        "out": spread(random.normal(0, 0.2, (128, 10)).astype(np.float32), mesh, P("model", None)),
    }

    @jax.jit
    def step(weights, images, labels):
        (loss, scores), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            weights, images, labels
        )
        right = (scores.argmax(1) == labels).mean()
        return jax.tree.map(lambda w, g: w - args.lr * g, weights, gradients), loss, right

    for number in range(args.steps):
        weights, loss, right = step(weights, images, labels)
        if hvd.rank() == 0 and (number + 1) % 50 == 0:
            print(
                f"step {number + 1}: loss {float(loss):.4f}, right {float(right):.2%}", flush=True
            )
    if hvd.rank() == 0:
        print(f"mesh:        {dict(mesh.shape)}, weights {weights['in'].sharding.spec}")
        print(f"right:       {float(right):.2%} of the images")
    hvd.distributed.shutdown()
    hvd.shutdown()


if __name__ == "__main__":
    main()
