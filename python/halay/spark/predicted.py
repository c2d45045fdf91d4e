# SPDX-License-Identifier: Apache-2.0
"""What a model says of each row of a DataFrame, in columns of their own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from . import columns
from .columns import Metadata
from .rows import dense

ROWS = 256  # that a model gets at a time

# Of arrays (rows, ...) of float32, one for each feature: arrays (rows, ...), one for each output.
Call = Callable[[list[Any]], list[Any]]


def added(
    df: Any,
    call: Call,
    features: Sequence[str],
    shapes: Sequence[Sequence[int] | None],
    labels: Sequence[str],
    outputs: Sequence[str],
    metadata: Metadata,
) -> Any:
    """The DataFrame and a column for each output. call goes to the executors by cloudpickle; its
    widths are seen here, by a row of zeros. shapes: of each feature's row, where they are known."""
    from pyspark.sql import functions as f

    columns.check(df.schema, features, False)
    for name in outputs:
        if name in df.columns:
            raise ValueError(f"the DataFrame has a column '{name}' already: setOutputCols()")
    sizes = [output.size for output in call(_zeros(features, shapes, metadata))]
    if not len(sizes) == len(outputs) == len(labels):
        raise ValueError(
            f"{len(labels)} label columns, {len(outputs)} output columns, {len(sizes)} outputs "
            "of the model: there must be as many of each"
        )
    taken = [
        columns.as_array(name, df.schema[name].dataType).alias(f"f{i}")
        for i, name in enumerate(features)
    ]
    predicted = _predictor(call, features, len(sizes))(f.struct(*taken))
    column = f"halay_{secrets.token_hex(8)}"
    kinds = [_kind(df, label, size, metadata) for label, size in zip(labels, sizes)]
    made = [
        _output(f"{column}.o{i}", kind).alias(name)
        for i, (name, kind) in enumerate(zip(outputs, kinds))
    ]
    return df.withColumn(column, predicted).select(*map(columns.named, df.columns), *made)


def _zeros(
    features: Sequence[str], shapes: Sequence[Sequence[int] | None], metadata: Metadata
) -> list[Any]:
    import numpy as np

    found = []
    for i, name in enumerate(features):
        size = (metadata.get(name) or {}).get("shape") or 1
        shape = shapes[i] if i < len(shapes) else None
        if shape is not None:
            size = abs(int(np.prod(shape)))
        found.append(np.zeros((1, size) if size > 1 else 1, "float32"))
    return found


def _kind(df: Any, label: str, size: int, metadata: Metadata) -> Any:
    """Spark's type of an output: that of the label, or a vector if there are more elements."""
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import types

    known = (metadata.get(label) or {}).get("spark_data_type")
    if known is None and label in df.columns:
        known = df.schema[label].dataType
    is_number = isinstance(known, types.NumericType)
    if size > 1 or isinstance(known, (VectorUDT, types.ArrayType)):
        return VectorUDT()
    return known if is_number else types.DoubleType()


def _output(name: str, kind: Any) -> Any:
    from pyspark.ml.functions import array_to_vector
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import functions as f
    from pyspark.sql import types

    if isinstance(kind, VectorUDT):
        return array_to_vector(f.col(name))
    value = f.element_at(f.col(name), 1)
    return (f.rint(value) if isinstance(kind, types.IntegralType) else value).cast(kind)


def _predictor(call: Call, features: Sequence[str], count: int) -> Any:
    """A pandas UDF of the feature columns: a struct with an array of doubles for each output."""
    import pandas
    from pyspark import cloudpickle
    from pyspark.sql.functions import pandas_udf

    pickled = bytes(cloudpickle.dumps(call))
    kind = ", ".join(f"o{i} array<double>" for i in range(count))

    def predict(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        import pickle

        import pyarrow

        own = pickle.loads(pickled)
        for batch in batches:
            inputs = [
                dense(pyarrow.Array.from_pandas(batch[f"f{i}"]), name).astype("float32")
                for i, name in enumerate(features)
            ]
            made: list[list[Any]] = [[] for _ in range(count)]
            for at in range(0, len(batch), ROWS):
                part = [one[at : at + ROWS] for one in inputs]
                for rows, output in zip(made, own(part)):
                    rows.extend(output.reshape(len(part[0]), -1).astype("float64"))
            yield pandas.DataFrame({f"o{i}": rows for i, rows in enumerate(made)})

    predict.__annotations__ = {
        "batches": Iterator[pandas.DataFrame],
        "return": Iterator[pandas.DataFrame],
    }
    return pandas_udf(predict, kind)
