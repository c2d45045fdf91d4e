# SPDX-License-Identifier: Apache-2.0
"""Fits an Estimator to handwritten digits: python examples/spark_estimator.py [RANKS [STORE]]

The pipeline scales the pixels, trains on RANKS ranks, and classifies digits that it has not seen.
"""

import sys
import tempfile

import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import MinMaxScaler
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from sklearn.datasets import load_digits

from halay.spark.store import Store
from halay.spark.torch import TorchEstimator


def loss(output, label):
    return torch.nn.functional.cross_entropy(output, label.long())


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    spark = SparkSession.builder.master(f"local[{ranks}]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    digits = load_digits()
    rows = [(Vectors.dense(x), int(y)) for x, y in zip(digits.data, digits.target)]
    df = spark.createDataFrame(rows, ["pixels", "digit"])
    train, test = df.randomSplit([0.8, 0.2], seed=1)

    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(sys.argv[2] if len(sys.argv) > 2 else folder)
        torch.manual_seed(1)
        layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        model = torch.nn.Sequential(*layers)
        estimator = TorchEstimator(
            num_proc=ranks,
            store=store,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss=loss,
            feature_cols=["scaled"],
            label_cols=["digit"],
            input_shapes=[[-1, 64]],
            batch_size=32,
            epochs=6,
            validation=0.1,
            random_seed=1,
        )
        pipeline = Pipeline(stages=[MinMaxScaler(inputCol="pixels", outputCol="scaled"), estimator])
        fitted = pipeline.fit(train)
        fitted.write().overwrite().save(f"{folder}/model")
        loaded = PipelineModel.load(f"{folder}/model")
        scores = vector_to_array("digit__output")
        guess = f.array_position(scores, f.array_max(scores)) - 1
        right = loaded.transform(test).where(guess == f.col("digit")).count()
    print(f"accuracy {right / test.count():.3f}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
