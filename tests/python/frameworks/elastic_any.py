# SPDX-License-Identifier: Apache-2.0
"""The training of tensorflow_elastic.py and keras_elastic.py: its rows, and its losses by NumPy."""

import numpy as np

ROWS, INPUTS, HIDDEN = 12, 5, 8
RATE, MOMENTUM = 0.05, 0.5


def batch_of(number):
    """Rows of all ranks together, whatever their number is."""
    random = np.random.default_rng(number)
    x = random.integers(-3, 4, (ROWS, INPUTS)).astype("float64") / 3
    return x, x.sum(1, keepdims=True)


def first_weights():
    random = np.random.default_rng(1000)
    shapes = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
    return [random.normal(size=shape) / 2 for shape in shapes]


def forward(weights, x):
    hidden = np.tanh(x @ weights[0] + weights[1])
    return hidden, hidden @ weights[2] + weights[3]


def loss_of(weights):
    """On rows with which nobody trains."""
    x, y = batch_of(2000)
    return float(((forward([w.astype("float64") for w in weights], x)[1] - y) ** 2).mean())


def losses(batches):
    """loss_of() after each batch, of one process without Halay."""
    weights = first_weights()
    speeds = [np.zeros_like(w) for w in weights]
    found = []
    for number in range(batches):
        x, y = batch_of(number)
        hidden, output = forward(weights, x)
        error = 2 * (output - y) / ROWS
        back = (error @ weights[2].T) * (1 - hidden**2)
        slopes = [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
        speeds = [MOMENTUM * v - RATE * g for v, g in zip(speeds, slopes)]
        weights = [w + v for w, v in zip(weights, speeds)]
        found.append(loss_of(weights))
    return found
