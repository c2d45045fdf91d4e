# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator: on ranks of halayrun, and on a real Spark of two executors."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sampled

for needed in ("pyspark", "pyarrow", "pandas", "fsspec"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install {needed}")

from conftest import halayrun  # noqa: E402
from test_keras import LEGACY, TORCH, settings  # noqa: E402

HERE = Path(__file__).resolve().parent
LATE_S = 300  # for ranks to start, where others have the cores


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "jax", TORCH, LEGACY])
@pytest.mark.parametrize("nranks", [2, 1])
def test_ranks(tmp_path, backend, nranks):
    """As keras_estimator.py says."""
    command = [sys.executable, str(HERE / "keras_estimator.py"), str(tmp_path)]
    status, text = halayrun(nranks, command, timeout=600, env=settings(backend))
    assert status == 0, text


@pytest.mark.long
def test_pipeline(request, tmp_path, monkeypatch):
    """Ranks of halay.spark.run train as one process; a pipeline is saved, loaded, and predicts."""
    from spark_bed import pyspark_or_skip

    pyspark_or_skip()
    import keras
    import numpy as np
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    from halay.spark.keras import KerasEstimator
    from halay.spark.store import Store

    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", str(LATE_S))
    spark = SparkSession(request.getfixturevalue("spark_context"))
    rows = [(i % 7 - 3.0, i % 5 - 2.0, 2.0 * (i % 7) - i % 5, i) for i in range(32)]
    df = spark.createDataFrame(rows, ["a", "b", "y", "i"])
    x = np.float32([row[:2] for row in rows])
    y = np.float32([row[2] for row in rows])

    def network():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.set_weights([np.float32([[0.5], [0.25]]), np.float32([0.125])])
        return model

    store = Store.create(str(tmp_path / "store"))
    one = KerasEstimator(
        num_proc=2, store=store, model=network(), optimizer=keras.optimizers.SGD(0.05, 0.5),
        loss="mse", feature_cols=["x"], label_cols=["y"], batch_size=16, epochs=3, random_seed=7,
        partitions_per_process=1, verbose=0,
    )  # fmt: skip
    stages = [VectorAssembler(inputCols=["a", "b"], outputCol="x"), one]
    Pipeline(stages=stages).save(str(tmp_path / "estimator"))
    loaded = Pipeline.load(str(tmp_path / "estimator")).getStages()[1]
    assert loaded.getBatchSize() == 16 and loaded.getStore() is None
    assert loaded.getOptimizer().get_config() == one.getOptimizer().get_config()
    fitted = Pipeline(stages=[stages[0], loaded.setStore(store)]).fit(df)

    alone = network()
    alone.compile(keras.optimizers.SGD(0.1, 0.5), "mse")
    history = alone.fit(x, y, batch_size=32, epochs=3, verbose=0).history
    trained = fitted.stages[1]
    np.testing.assert_allclose(trained.getHistory()["loss"], history["loss"], rtol=1e-5)
    for mine, theirs in zip(trained.getModel().get_weights(), alone.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    assert {path.name for path in (tmp_path / "store").glob("*")} == {"runs"}

    fitted.save(str(tmp_path / "pipeline"))
    for model in (fitted, PipelineModel.load(str(tmp_path / "pipeline"))):
        found = model.transform(df).orderBy("i").collect()
        np.testing.assert_allclose(
            [row["y__output"] for row in found], alone.predict(x, verbose=0)[:, 0], atol=1e-5
        )
        assert [row["i"] for row in found] == list(range(32))
