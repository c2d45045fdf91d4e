# SPDX-License-Identifier: Apache-2.0
"""halay.tensorflow: tapes, optimizers, variables, batch normalization, elastic states."""

import numpy as np
import pytest
from conftest import RANKS

pytestmark = pytest.mark.sampled

STEPS, ROWS, FEATURES = 6, 12, 5
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def _import():
    import lean  # noqa: F401
    import tensorflow as tf

    import halay.tensorflow as hvd

    return tf, hvd


def _data():
    made = np.random.default_rng(7)
    x = made.standard_normal((STEPS, ROWS, FEATURES)).astype(np.float32)
    return x, (x @ made.standard_normal((FEATURES, 1))).astype(np.float32)


def _variables(tf, seed):
    made = np.random.default_rng(seed)
    shapes = [(FEATURES, 4), (4,), (4, 1)]
    return [tf.Variable(made.standard_normal(shape).astype(np.float32)) for shape in shapes]


def _loss(tf, variables, x, y):
    w, b, v = variables
    return tf.reduce_mean(tf.square(tf.tanh(x @ w + b) @ v - y))


def _train(tf, tape_of, variables, rank, size, compiled):
    """Losses of this rank's share of the rows, and the variables after the last step."""
    x, y = _data()

    def step(rows, wanted):
        with tf.GradientTape() as tape:
            loss = _loss(tf, variables, rows, wanted)
        gradients = tape_of(tape).gradient(loss, variables)
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(0.1 * gradient)
        return loss

    run = tf.function(step) if compiled else step
    losses = [float(run(x[i][rank::size], y[i][rank::size])) for i in range(STEPS)]
    return losses, [variable.numpy() for variable in variables]


def tapes(compiled):
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    alone_losses, alone = _train(tf, lambda t: t, _variables(tf, 1), 0, 1, compiled)
    variables = _variables(tf, 1 + rank)
    hvd.broadcast_variables(variables, 0)
    losses, found = _train(tf, hvd.DistributedGradientTape, variables, rank, size, compiled)
    everywhere = hvd.allgather_object([one.tobytes() for one in found])
    assert all(one == everywhere[0] for one in everywhere)  # to the bit
    for one, wanted in zip(found, alone):
        np.testing.assert_allclose(one, wanted, rtol=2e-5, atol=2e-6)
    mean = np.mean(hvd.allgather_object(losses), axis=0)
    np.testing.assert_allclose(mean, alone_losses, rtol=2e-5)
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("nranks", RANKS)
def test_training_equals_one_process(job, nranks, compiled):
    assert job(nranks, tapes, compiled) == [True] * nranks


def tape_arguments():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    x = tf.Variable([1.0, 2.0])
    table = tf.Variable(tf.ones([4, 2]))
    mean = sum(r + 1 for r in range(size)) / size

    def gradients(use=None, **how):
        def run():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(x) * float(rank + 1)
                loss += tf.reduce_sum(tf.gather(table, [rank])) * float(rank + 1)
            made = hvd.DistributedGradientTape(tape, **how)
            if use is not None:
                use(made)
            return made.gradient(loss, [x, table])

        return [run(), tf.function(run)()] if "groups" not in how else [run()]

    for plain, sparse in gradients():
        np.testing.assert_array_equal(plain, np.full(2, np.float32(mean)))
        assert isinstance(sparse, tf.IndexedSlices)
        assert sparse.indices.numpy().tolist() == list(range(size))
        dense = tf.convert_to_tensor(sparse).numpy()
        assert dense[:size, 0].tolist() == [np.float32((r + 1) / size) for r in range(size)]
    for how in (
        {"sparse_as_dense": True},
        {"sparse_as_dense": True, "groups": 1},
        {"sparse_as_dense": True, "groups": [[table, x]]},
        {"sparse_as_dense": True, "gradient_predivide_factor": 2.0},
        {"sparse_as_dense": True, "compression": hvd.Compression.fp16},
    ):
        for plain, sparse in gradients(**how):
            np.testing.assert_array_equal(plain, np.full(2, np.float32(mean)))
            assert sparse[:size, 0].numpy().tolist() == [
                np.float32((r + 1) / size) for r in range(size)
            ]
    for plain, _ in gradients(lambda tape: tape.register_local_source(x)):
        np.testing.assert_array_equal(plain, np.full(2, np.float32((rank + 1) / size)))
    for plain, _ in gradients(
        lambda tape: tape.register_local_source(x), scale_local_gradients=False
    ):
        np.testing.assert_array_equal(plain, [rank + 1.0] * 2)
    with tf.GradientTape() as tape:
        loss = x * 2.0
    unused = tf.Variable(1.0)
    found = hvd.DistributedGradientTape(tape).gradient(loss, {"x": x, "unused": unused})
    assert found["unused"] is None
    np.testing.assert_array_equal(found["x"], [2.0, 2.0])
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:  # from the beginning
        loss = x * float(rank)
    np.testing.assert_array_equal(tape.gradient(loss, x), [sum(range(size)) / size] * 2)
    with pytest.raises(ValueError, match="needs op Average"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)
    return True


def test_tape_arguments(job):
    assert job(2, tape_arguments) == [True] * 2


def graphs():
    """TF1-style: a session, the hook, an optimizer with several passes a step."""
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("v", initializer=tf.constant([float(rank + 3)]))
        result = hvd.allreduce(variable, op=hvd.Sum)
        with v1.train.MonitoredTrainingSession(
            hooks=[hvd.BroadcastGlobalVariablesHook(0)]
        ) as session:
            assert session.run(variable).tolist() == [3.0]
            assert session.run(result).tolist() == [3.0 * size]
        assert hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=tf.constant([0.0]))
        plain = v1.train.GradientDescentOptimizer(1.0)
        optimizer = hvd.DistributedOptimizer(
            plain, backward_passes_per_step=2, average_aggregated_gradients=True
        )
        count = v1.train.get_or_create_global_step()
        pairs = optimizer.compute_gradients(weight * float(rank + 1), [weight])
        train = optimizer.apply_gradients(pairs, global_step=count)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            mean = sum(r + 1 for r in range(size)) / size
            for step in range(1, 7):
                session.run(train)
                assert session.run(weight).tolist() == [-mean * (step // 2)], step
                assert session.run(count) == step
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=tf.constant([0.0]))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
        train = optimizer.minimize(weight * float(rank + 1))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            assert session.run(weight).tolist() == [-sum(r + 1 for r in range(size)) / size]
    with pytest.raises(RuntimeError, match="needs a graph"):
        hvd.broadcast_global_variables(0)
    return True


def test_tf1_graphs(job):
    assert job(2, graphs) == [True] * 2


def keras_optimizers(legacy):
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    assert tf.keras.Model.__module__.startswith("tf_keras") == legacy
    x, y = _data()

    def model_of(seed):
        tf.keras.utils.set_random_seed(seed)
        made = tf.keras.Sequential(
            [tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)]
        )
        made.build((None, FEATURES))
        return made

    alone = model_of(1)
    alone.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    model = model_of(1 + rank)
    hvd.broadcast_variables(model.variables, 0)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    assert type(optimizer).__name__ == "SGD"
    model.compile(optimizer=optimizer, loss="mse")
    for i in range(STEPS):
        alone.train_on_batch(x[i], y[i])
        model.train_on_batch(x[i][rank::size], y[i][rank::size])
    for one, wanted in zip(model.get_weights(), alone.get_weights()):
        np.testing.assert_allclose(one, wanted, rtol=2e-5, atol=2e-6)
    own = [one.tobytes() for one in model.get_weights()]
    assert hvd.allgather_object(own) == [own] * size
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("legacy", [False, True])
def test_keras_optimizers(job, legacy):
    env = {**QUIET, "TF_USE_LEGACY_KERAS": str(int(legacy))}
    assert job(2, keras_optimizers, legacy, env=env) == [True] * 2


def infinities(legacy):
    """On one rank only: all skip the step."""
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    kinds = [tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.Adam(0.1)]
    kinds += [tf.keras.optimizers.legacy.SGD(0.1)] if legacy else []
    for optimizer in kinds:
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
        model.build((None, FEATURES))
        model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse")
        before = model.get_weights()
        x, y = np.ones((3, FEATURES), np.float32), np.ones((3, 1), np.float32)
        model.train_on_batch(x * (1e9 if rank == 1 else 1.0), y)
        for one, wanted in zip(model.get_weights(), before):
            np.testing.assert_array_equal(one, wanted)
        for _ in range(3):
            model.train_on_batch(x * rank, y)
        own = [one.tobytes() for one in model.get_weights()]
        assert own != [one.tobytes() for one in before]
        assert hvd.allgather_object(own) == [own] * size
    return True


@pytest.mark.parametrize("legacy", [False, pytest.param(True, marks=pytest.mark.long)])
def test_infinities_on_one_rank(job, legacy):
    env = {**QUIET, "TF_USE_LEGACY_KERAS": str(int(legacy))}
    assert job(2, infinities, legacy, env=env) == [True] * 2


def normalization():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    rows = np.random.default_rng(3).standard_normal((9, 4)).astype(np.float32) * 3 + 5
    ends = [0, 2, 9] if size == 2 else [0, 2, 5, 9]  # batches of different sizes
    own = rows[ends[rank] : ends[rank + 1]]

    def run(layer, given):
        x = tf.Variable(given)
        with tf.GradientTape() as tape:
            out = layer(x, training=True)
            loss = tf.reduce_sum(out * out * tf.reshape(tf.range(4.0), [1, 4]))
        return out.numpy(), tape.gradient(loss, x).numpy()

    plain, joined = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    wanted, slope = run(plain, rows)
    found, own_slope = run(joined, own)
    part = slice(ends[rank], ends[rank + 1])
    np.testing.assert_allclose(found, wanted[part], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own_slope, slope[part], rtol=1e-3, atol=1e-4)
    for a, b in zip(joined.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="no fused form"):
        hvd.SyncBatchNormalization(fused=True)
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_sync_batch_normalization(job, nranks):
    assert job(nranks, normalization) == [True] * nranks


def states():
    tf, hvd = _import()
    rank = hvd.rank()
    variables = [tf.Variable([float(rank)] * 2), tf.Variable(rank)]
    state = hvd.elastic.TensorFlowState(variables, epoch=rank + 5, notes=[rank])
    seen = []

    @hvd.elastic.run
    def train(state):
        seen.append((state.epoch, state.notes, [v.numpy().tolist() for v in state.variables]))
        if len(seen) == 1:
            state.epoch += 1
            variables[0].assign([7.0, 7.0])
            state.commit()
            variables[0].assign([9.0, 9.0])
            # Different shapes: an error of an operation, on all ranks.
            tf.function(lambda x: hvd.allreduce(x))(tf.ones([2 + rank]))
        return state.epoch

    assert train(state) == 6
    assert seen == [(5, [0], [[0.0, 0.0], 0]), (6, [0], [[7.0, 7.0], 0])]

    class Other(Exception):
        pass

    @hvd.elastic.run
    def fail(state):
        raise Other

    with pytest.raises(Other):
        fail(state)

    @hvd.elastic.run
    def divide(state):
        tf.debugging.assert_equal(1, 2)

    with pytest.raises(tf.errors.InvalidArgumentError):
        divide(state)
    return True


def test_elastic_states(job):
    assert job(2, states) == [True] * 2


def keras_states():
    tf, hvd = _import()
    rank = hvd.rank()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
    with pytest.raises(ValueError, match="has no variables yet"):
        hvd.elastic.TensorFlowKerasState(model)
    model.build((None, 2))
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    model.train_on_batch(np.ones((2, 2)) * rank, np.ones((2, 1)))
    state = hvd.elastic.TensorFlowKerasState(model, batch=rank)
    state.sync()
    all_of = hvd.allgather_object([one.numpy().tolist() for one in state._all()])
    assert all_of == [all_of[0]] * hvd.size()
    assert state.batch == 0
    before = model.get_weights()
    model.set_weights([one + 1 for one in before])
    state.restore()
    for one, wanted in zip(model.get_weights(), before):
        np.testing.assert_array_equal(one, wanted)
    return True


def test_keras_states(job):
    assert job(2, keras_states) == [True] * 2


def timeline(folder):
    import json
    import os

    tf, hvd = _import()
    path = os.path.join(folder, "timeline.json")
    hvd.start_timeline(path)
    tf.function(lambda x: hvd.allreduce(x, name="shown"))(tf.ones(3))
    hvd.stop_timeline()
    own = path if hvd.rank() == 0 else f"{path}.rank{hvd.rank()}"
    return any("tf.allreduce.shown" in json.dumps(one) for one in json.load(open(own)))


def test_timeline(job, tmp_path):
    assert job(2, timeline, str(tmp_path)) == [True] * 2
