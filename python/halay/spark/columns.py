# SPDX-License-Identifier: Apache-2.0
"""A DataFrame's columns: what models can take, and how Spark writes them into a Store."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import rows
from .rows import Group
from .session import text_of
from .store import Store

ROW_GROUP_BYTES = 64 << 20
MARK = "halay_validation"  # the column that parts the rows, as folders

Metadata = dict[str, dict[str, Any]]  # by column: spark_data_type, shape (elements of a row)


class Written(NamedTuple):
    """Row groups for training and validation, and what is known of their columns."""

    train: list[Group]
    val: list[Group]
    metadata: Metadata


def _numbers(kind: Any) -> bool:
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import types

    while isinstance(kind, types.ArrayType):
        kind = kind.elementType
    numeric = (types.IntegralType, types.FractionalType, types.BooleanType)
    return isinstance(kind, VectorUDT) or (
        isinstance(kind, numeric) and not isinstance(kind, types.DecimalType)
    )


def check(schema: Any, columns: Sequence[str], any_type: bool) -> None:
    """ValueError for a column that is not there, or has no numbers if any_type is not true."""
    for name in columns:
        if name not in schema.names:
            raise ValueError(f"there is no column '{name}' in the DataFrame: {schema.names}")
        kind = schema[name].dataType
        if not any_type and not _numbers(kind):
            raise ValueError(
                f"column '{name}' is of type {kind.simpleString()}: a model takes numbers, arrays "
                "of numbers and vectors. Cast it, or give a transformation_fn that makes them of it"
            )


def check_validation(validation: Any, schema: Any) -> None:
    """None, a part of the rows from 0 to 1, or a column's name."""
    if isinstance(validation, bool) or not isinstance(validation, (type(None), int, float, str)):
        raise ValueError(f"validation must be a float or a column's name, not {validation!r}")
    if isinstance(validation, str):
        check(schema, [validation], False)
    elif validation is not None and not 0 <= validation < 1:
        raise ValueError(f"validation must be from 0 to 1 (exclusive), not {validation}")


def _is_vector(kind: Any) -> bool:
    from pyspark.ml.linalg import VectorUDT

    return isinstance(kind, VectorUDT)


def _is_nested(kind: Any) -> bool:
    from pyspark.sql import types

    return isinstance(kind, types.ArrayType) and isinstance(kind.elementType, types.ArrayType)


def named(name: str) -> Any:
    """The column, whatever characters its name has."""
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def as_array(name: str, kind: Any) -> Any:
    """The column, with an array of float where it has vectors."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as f

    column = named(name)
    if not _is_vector(kind):
        return column
    return f.when(column.isNotNull(), vector_to_array(column, "float32"))


def _measures(schema: Any, columns: Sequence[str]) -> list[Any]:
    """What is counted while Spark writes: rows; of each column nulls, and elements of a row."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    found = [f.count(f.lit(1)).alias("rows")]
    for i, name in enumerate(columns):
        column = named(name)
        null = column.isNull()
        if isinstance(schema[name].dataType, types.ArrayType):
            found += [
                f.min(f.size(column)).alias(f"min{i}"),
                f.max(f.size(column)).alias(f"max{i}"),
            ]
            null = null | f.exists(column, lambda one: one.isNull())
        found.append(f.sum(null.cast("long")).alias(f"nulls{i}"))
    return found


def _judge(measured: dict[str, Any], columns: Sequence[str], any_length: bool) -> dict[str, Any]:
    """Elements of a row, by column. ValueError for nulls and for different lengths."""
    sizes: dict[str, Any] = {}
    for i, name in enumerate(columns):
        nulls = measured[f"nulls{i}"]
        if nulls:
            raise ValueError(
                f"column '{name}' has nulls in {nulls} of {measured['rows']} rows: drop or fill "
                "them first (DataFrame.na.drop, DataFrame.na.fill)"
            )
        low, high = measured.get(f"min{i}", 1), measured.get(f"max{i}", 1)
        if low != high and not any_length:
            raise ValueError(rows.uneven(name, low, high))
        sizes[name] = low if low == high else None
    return sizes


def _marked(validation: Any, schema: Any, seed: int) -> Any:
    """Whether a row is for validation."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    if isinstance(validation, str):
        column = named(validation)
        return column if isinstance(schema[validation].dataType, types.BooleanType) else column > 0
    return f.rand(seed) < validation


@contextlib.contextmanager
def written(
    df: Any,
    store: Store,
    columns: Sequence[str],
    validation: Any,
    parts: int,
    seed: int,
    any_type: bool = False,
) -> Iterator[Written]:
    """The columns of df as Parquet in the store, until the end of the with block.

    parts: files that are written, evenly filled. any_type: of columns, lengths of arrays too.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    check(df.schema, columns, any_type)
    check_validation(validation, df.schema)
    if validation and MARK in columns:
        raise ValueError(f"the column name '{MARK}' is taken by what parts the rows: rename it")
    kinds = {name: df.schema[name].dataType for name in columns}
    picked = [as_array(name, kind).alias(name) for name, kind in kinds.items()]
    counted = list(columns)
    if validation:
        picked.append(_marked(validation, df.schema, seed).alias(MARK))
        counted.append(MARK)
    chosen = df.select(*picked)
    seen = Observation()
    path = store.get_train_data_path(secrets.token_hex(8))
    sorting = [f.xxhash64(*map(named, chosen.columns))]
    writer = (
        chosen.observe(seen, *_measures(chosen.schema, counted))
        .repartition(parts)
        .sortWithinPartitions(*sorting)
        .write.option("parquet.block.size", ROW_GROUP_BYTES)
    )
    try:
        if validation:
            writer = writer.partitionBy(MARK)
        _write(writer, store, path)
        found = _found(store, path, bool(validation))
        if not found.train and not found.val and chosen.isEmpty():
            raise ValueError("there are no rows to train on")  # and nothing was counted
        measured = seen.get
        sizes = _judge(measured, counted, any_type)
        metadata = {
            name: {"spark_data_type": kind, "shape": None if _is_nested(kind) else sizes[name]}
            for name, kind in kinds.items()
        }
        _refuse_missing(found, measured["rows"], store)
        _refuse_empty(found, bool(validation))
        yield found._replace(metadata=metadata)
    finally:
        store.remove(path)


def _write(writer: Any, store: Store, path: str) -> None:
    from py4j.protocol import Py4JJavaError

    try:
        writer.parquet(store.get_spark_path(path))
    except Py4JJavaError as error:  # what Spark knows no better error for
        raise RuntimeError(
            f"Spark could not write the rows below {store.prefix_path}: {text_of(error)}"
        ) from error


def _groups(store: Store, path: str) -> list[Group]:
    return rows.groups(store.get_parquet_dataset(path)) if store.exists(path) else []


def _found(store: Store, path: str, validated: bool) -> Written:
    if not validated:
        return Written(_groups(store, path), [], {})
    train, val = (_groups(store, f"{path}/{MARK}={flag}") for flag in ("false", "true"))
    return Written(train, val, {})


def _refuse_missing(found: Written, count: int, store: Store) -> None:
    seen = rows.rows([*found.train, *found.val])
    if seen != count:
        raise RuntimeError(
            f"Spark has written {count} rows below {store.prefix_path}, this process finds {seen}: "
            "the Store must be on a file system that the driver and all nodes share"
        )


def _refuse_empty(found: Written, validated: bool) -> None:
    if not found.train:
        raise ValueError("there are no rows to train on")
    if validated and not found.val:
        raise ValueError("there are no rows for validation")


def stored(store: Store, columns: Sequence[str], validated: bool, name: Any) -> Written:
    """Parquet that is there already: at get_train_data_path(name), and get_val_data_path(name)."""
    from pyspark.sql.pandas.types import from_arrow_type

    path = store.get_train_data_path(name)
    if not store.exists(path):
        raise ValueError(f"there is no Parquet at {path}: write it first, or call fit()")
    schema = store.get_parquet_dataset(path).schema
    for column in columns:
        if column not in schema.names:
            raise ValueError(f"there is no column '{column}' in {path}: {schema.names}")
    metadata = {
        column: {"spark_data_type": from_arrow_type(schema.field(column).type), "shape": None}
        for column in columns
    }
    val = _groups(store, store.get_val_data_path(name)) if validated else []
    found = Written(_groups(store, path), val, metadata)
    _refuse_empty(found, validated)
    return found
