# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on scikit-learn's handwritten digits, in a loop of its own.

Written as for Horovod: the same file runs alone (python examples/tensorflow2_custom_loop.py) and on
many ranks (halayrun -np 4 python examples/tensorflow2_custom_loop.py). The global batch is the same
for any number of ranks, so more ranks each do less.
"""

import argparse
import hashlib
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import halay.tensorflow as hvd


class Net(tf.Module):
    """Two convolutions and two dense layers, without Keras."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        made = np.random.default_rng(seed)

        def weight(*shape: int) -> tf.Variable:
            scale = np.sqrt(2 / np.prod(shape[:-1]))
            return tf.Variable((made.standard_normal(shape) * scale).astype(np.float32))

        self.conv1, self.conv2 = weight(3, 3, 1, 16), weight(3, 3, 16, 32)
        self.fc1, self.fc2 = weight(32 * 4 * 4, 64), weight(64, 10)
        self.bias1, self.bias2 = tf.Variable(tf.zeros([64])), tf.Variable(tf.zeros([10]))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(tf.nn.conv2d(x, self.conv1, 1, "SAME"))
        x = tf.nn.relu(tf.nn.conv2d(x, self.conv2, 1, "SAME"))
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "SAME"), [-1, 32 * 4 * 4])
        return tf.nn.relu(x @ self.fc1 + self.bias1) @ self.fc2 + self.bias2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--checkpoint", default="digits", help="written by rank 0")
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


def batches(data: tuple[np.ndarray, np.ndarray], batch_size: int, seed: int) -> tf.data.Dataset:
    """This rank's part of each global batch; the same order on all ranks."""
    dataset = tf.data.Dataset.from_tensor_slices(data)
    dataset = dataset.shuffle(len(data[0]), seed=seed, reshuffle_each_iteration=True)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    rank, size = hvd.rank(), hvd.size()
    return dataset.map(lambda x, y: (x[rank::size], y[rank::size])).prefetch(2)


def evaluate(net: Net, data: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy: each rank looks at its shard, the counts are summed."""
    images, labels = (part[hvd.rank() :: hvd.size()] for part in data)
    right = int((tf.argmax(net(images), 1).numpy() == labels).sum())
    right, all_ = hvd.allreduce(tf.constant([right, len(labels)]), op=hvd.Sum, name="accuracy")
    return int(right) / int(all_)


def fingerprint(net: Net) -> str:
    """SHA-256 of all parameter bytes."""
    digest = hashlib.sha256()
    for variable in net.trainable_variables:
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()


def report(net: Net, seconds: float, images: int, accuracy: float) -> None:
    digests = hvd.allgather_object(fingerprint(net), name="fingerprint")
    if hvd.rank() == 0:
        print(f"ranks:       {hvd.size()}")
        print(f"transport:   {hvd.transport()}")
        print(f"speed:       {images / seconds:,.0f} images/s")
        print(f"accuracy:    {accuracy:.2%} of the held-out test images")
        same = len(set(digests)) == 1
        print(f"parameters:  {'bit-identical on all ranks' if same else 'DIFFERENT'}", digests[0])
    if len(set(digests)) != 1:
        raise SystemExit("the parameters differ between ranks")


def main() -> None:
    args = parse_arguments()
    hvd.init()
    if args.batch_size % hvd.size() != 0:
        raise SystemExit(f"--batch-size {args.batch_size} is no multiple of {hvd.size()} ranks")
    tf.config.threading.set_intra_op_parallelism_threads(1)  # ranks share the cores

    train, test = load_data(args.seed)
    dataset = batches(train, args.batch_size, args.seed)
    net = Net(args.seed + hvd.rank())
    hvd.broadcast_variables(net.variables, root_rank=0)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(images))
            loss = tf.reduce_mean(losses)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, net.trainable_variables)
        for variable, gradient in zip(net.trainable_variables, gradients):
            variable.assign_sub(args.lr * gradient)
        return loss

    begin, accuracy = time.monotonic(), 0.0
    for epoch in range(args.epochs):
        losses = [float(step(images, labels)) for images, labels in dataset]
        loss = float(hvd.allreduce(tf.constant(sum(losses) / len(losses)), name="mean_loss"))
        accuracy = evaluate(net, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:2d}: loss {loss:.4f}, accuracy {accuracy:.2%}", flush=True)
    seconds = time.monotonic() - begin

    if hvd.rank() == 0:
        tf.train.Checkpoint(net=net).write(args.checkpoint)
    report(net, seconds, args.epochs * len(train[0]), accuracy)
    hvd.shutdown()


if __name__ == "__main__":
    main()
