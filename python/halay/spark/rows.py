# SPDX-License-Identifier: Apache-2.0
"""Row groups of Parquet files, dealt to ranks and read as batches of NumPy arrays.

Invariant: a rank opens no file in which it has no row group, and reads no row group but its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

from .store import Store

WINDOW_BYTES = 256 << 20  # of rows that are shuffled among each other, as Parquet counts them
FLOAT_INTEGERS = 1 << 24  # up to here float32 holds all integers
FOOTERS = 16  # that are read at a time

Batch = dict[str, Any]  # arrays by column, all with the rows as their first dimension


class Group(NamedTuple):
    """A row group: its file, its place there, its rows, and its bytes when not compressed."""

    path: str
    place: int
    rows: int
    bytes: int


def groups(files: Any) -> list[Group]:
    """The row groups of all files of a pyarrow dataset that have rows."""

    def of(fragment: Any) -> list[Group]:
        return [
            Group(fragment.path, group.id, group.num_rows, group.total_byte_size)
            for group in fragment.row_groups
            if group.num_rows
        ]

    fragments = sorted(files.get_fragments(), key=lambda fragment: str(fragment.path))
    with ThreadPoolExecutor(FOOTERS) as pool:
        return list(itertools.chain.from_iterable(pool.map(of, fragments)))


def rows(of: Sequence[Group]) -> int:
    return sum(group.rows for group in of)


def deal(of: Sequence[Group], size: int, share: bool) -> list[list[Group]]:
    """Each rank's row groups, the same wherever it is called: the largest first, to whom has the
    fewest rows. share: ranks for which none is left read one of the others'."""
    dealt: list[list[Group]] = [[] for _ in range(size)]
    counts = [0] * size
    for group in sorted(of, key=lambda group: (-group.rows, group.path, group.place)):
        rank = counts.index(min(counts))
        dealt[rank].append(group)
        counts[rank] += group.rows
    if share and of:
        full = [own for own in dealt if own]
        dealt = [own or [full[rank % len(full)][0]] for rank, own in enumerate(dealt)]
    return dealt


def dense(column: Any, name: str) -> Any:
    """A NumPy array (rows, ...) of an Arrow array of numbers, or of lists of one length. It may lie
    in Arrow's memory, to which nobody may write.

    ValueError, with the column's name, if there are nulls, other lengths or no numbers.
    """
    import pyarrow
    import pyarrow.compute

    if isinstance(column, pyarrow.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    shape = [len(column)]
    while pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
        _refuse_nulls(column, name)
        if len(column) == 0:
            break
        spread = pyarrow.compute.min_max(pyarrow.compute.list_value_length(column)).as_py()
        if spread["min"] != spread["max"]:
            raise ValueError(uneven(name, spread["min"], spread["max"]))
        shape.append(spread["min"])
        column = column.flatten()
    _refuse_nulls(column, name)
    kinds = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise ValueError(f"column '{name}' has {column.type}: a model takes numbers")
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if max(-low, high) > FLOAT_INTEGERS:
            raise ValueError(
                f"column '{name}' has the integer {low if -low > high else high}: models get "
                f"float32, which holds integers up to {FLOAT_INTEGERS} only"
            )
    return values.reshape(shape)


def uneven(name: str, shortest: int, longest: int) -> str:
    found = f"column '{name}' has rows of {shortest} to {longest} elements"
    return f"{found}: all rows need the same number"


def _refuse_nulls(column: Any, name: str) -> None:
    if column.null_count:
        raise ValueError(f"column '{name}' has nulls: drop or fill them first (na.drop, na.fill)")


@dataclass
class Training:
    """What all Estimators tell their ranks: columns, row groups, how to go through them.

    train_steps, val_steps: batches of an epoch, if not all. window_rows: that are shuffled among
    each other. change: of a row. history: of the epochs before first_epoch.
    """

    features: list[str]
    labels: list[str]
    weight: str | None
    input_shapes: Sequence[Any] | None
    label_shapes: Sequence[Any] | None
    train: list[Group]
    val: list[Group]
    batch_size: int
    val_batch_size: int
    epochs: int
    first_epoch: int
    train_steps: int | None
    val_steps: int | None
    shuffle: bool
    window_rows: int | None
    cache: bool
    seed: int
    change: Callable[[Batch], Batch] | None
    compression: Any
    verbose: int
    store: Store
    run_id: str
    history: Any


class Reader:
    """A rank's row groups as batches.

    columns: which are read. seed: of the order, None for that of the files. window_rows: how many
    rows are shuffled among each other, at least; WINDOW_BYTES if None. cache: what is read once
    is kept in memory. change: a function of a row, as a dict, that returns the row that is used.
    """

    def __init__(
        self,
        own: Sequence[Group],
        filesystem: Any,
        columns: Sequence[str],
        seed: Sequence[int] | None = None,
        window_rows: int | None = None,
        cache: bool = False,
        change: Callable[[Batch], Batch] | None = None,
    ) -> None:
        self._own, self._filesystem, self._columns = list(own), filesystem, list(columns)
        self._seed, self._window_rows, self._change = seed, window_rows, change
        self._lengths: dict[str, int] = {}  # elements of a row, by column
        self._table = functools.lru_cache(None)(self._read) if cache else self._read

    def _read(self, group: Group) -> Any:
        from pyarrow import dataset

        form = dataset.ParquetFileFormat()
        fragment = form.make_fragment(group.path, self._filesystem, row_groups=[group.place])
        return fragment.to_table(columns=self._columns)

    def _windows(self, order: Iterable[int]) -> Iterator[list[Group]]:
        window: list[Group] = []
        for i in order:
            window.append(self._own[i])
            if self._window_rows is None:
                full = sum(group.bytes for group in window) >= WINDOW_BYTES
            else:
                full = rows(window) >= self._window_rows
            if full:
                yield window
                window = []
        if window:
            yield window

    def _load(self, window: list[Group]) -> tuple[int, Callable[[Any], Batch]]:
        """How many rows, and what takes some of them."""
        import pyarrow

        table = pyarrow.concat_tables([self._table(group) for group in window])
        if self._change is not None:
            return table.num_rows, functools.partial(self._changed, table)
        whole = {name: dense(table.column(name), name) for name in self._columns}
        for name, array in whole.items():
            length = self._lengths.setdefault(name, array[0].size)
            if length != array[0].size:
                raise ValueError(uneven(name, *sorted([length, array[0].size])))
        return table.num_rows, lambda which: {
            name: array[which].astype("float32", copy=isinstance(which, slice))
            for name, array in whole.items()
        }

    def _changed(self, table: Any, which: Any) -> Batch:
        import numpy as np

        assert self._change is not None
        if isinstance(which, slice):
            part = table.slice(which.start, which.stop - which.start)
        else:
            part = table.take(which)
        made = []
        for row in part.to_pylist():
            found = {k: np.array(v) if isinstance(v, list) else v for k, v in row.items()}
            made.append(self._change(found))
        return {
            name: np.stack([np.asarray(row[name], "float32") for row in made]) for name in made[0]
        }

    def _pieces(
        self, epoch: int, needed: int | None
    ) -> Iterator[tuple[Any, int, Callable[[Any], Batch]]]:
        """Windows: their order, rows, and what takes some of them. The next one is read meanwhile.

        needed: until there are so many rows, from the beginning again if need be; None: each once.
        """
        import numpy as np

        rng = np.random.default_rng([*self._seed, epoch]) if self._seed is not None else None

        def windows() -> Iterator[list[Group]]:
            planned = 0
            while True:
                places = range(len(self._own))
                for window in self._windows(places if rng is None else rng.permutation(places)):
                    yield window
                    planned += rows(window)
                    if needed is not None and planned >= needed:
                        return
                if needed is None:
                    return

        with ThreadPoolExecutor(1) as pool:
            plan = windows()
            ahead: Future[Any] | None = pool.submit(self._load, next(plan))
            while ahead is not None:
                now, window = ahead, next(plan, None)
                ahead = None if window is None else pool.submit(self._load, window)
                count, take = now.result()
                yield None if rng is None else rng.permutation(count), count, take

    def batches(self, epoch: int, size: int, steps: int | None) -> Iterator[Batch]:
        """Of size rows each. steps: so many, from the beginning again when the rows are used up;
        None: once through all rows, where the last batch may be smaller. Order by epoch."""
        if not self._own or steps == 0:
            return
        parts: list[Batch] = []
        missing, done = size, 0
        for order, count, take in self._pieces(epoch, None if steps is None else steps * size):
            at = 0
            while at < count:
                to = min(at + missing, count)
                parts.append(take(slice(at, to) if order is None else order[at:to]))
                missing -= to - at
                at = to
                if missing == 0:
                    yield _joined(parts)
                    parts, missing, done = [], size, done + 1
                    if done == steps:
                        return
        if parts:
            yield _joined(parts)


def reader(
    told: Training, own: Sequence[Group], rank: int, shuffle: bool, kind: type[Reader] = Reader
) -> Reader:
    """The rows of a rank's row groups."""
    columns = [*told.features, *told.labels, *([told.weight] if told.weight else [])]
    seed = [told.seed, rank] if shuffle and told.window_rows != 0 else None
    return kind(
        own,
        told.store.arrow_fs,
        list(dict.fromkeys(columns)),
        seed,
        told.window_rows or None,
        told.cache,
        told.change,
    )


def _joined(parts: list[Batch]) -> Batch:
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
