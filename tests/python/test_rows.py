# SPDX-License-Identifier: Apache-2.0
"""Row groups dealt to ranks and read as batches: by pyarrow alone, ranks are objects here."""

import math
import os
import resource
import signal

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install fsspec")

import numpy as np  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from fsspec.implementations.local import LocalFileSystem  # noqa: E402
from pyarrow import fs  # noqa: E402

from halay.spark import rows  # noqa: E402
from halay.spark.rows import Group, Reader, deal, dense  # noqa: E402
from halay.spark.store import DBFSLocalStore, HDFSStore, LocalStore, Store  # noqa: E402


def write(folder, *files):
    """files: of each file its row groups' rows. The column x counts all rows."""
    at = 0
    for i, counts in enumerate(files):
        schema = pyarrow.schema([("x", pyarrow.int64()), ("v", pyarrow.list_(pyarrow.float32()))])
        with pq.ParquetWriter(folder / f"part-{i}.parquet", schema) as writer:
            for count in counts:
                x = np.arange(at, at + count)
                v = [[value, -value] for value in x.astype("float32")]
                writer.write_table(pyarrow.table({"x": x, "v": v}, schema=schema))
                at += count
    store = Store.create(str(folder))
    return store, rows.groups(store.get_parquet_dataset(store.prefix_path))


def xs(batches):
    return [batch["x"].tolist() for batch in batches]


def test_deal():
    found = [Group("a", i, count, 0) for i, count in enumerate([5, 1, 3, 3, 2])]
    assert [[g.rows for g in own] for own in deal(found, 2, True)] == [[5, 2], [3, 3, 1]]
    assert deal(found, 2, True) == deal(found[::-1], 2, True)
    assert deal(found[:1], 3, True) == [found[:1]] * 3  # a rank without rows would stop the others
    assert deal(found[:2], 3, False) == [[found[0]], [found[1]], []]
    assert deal([], 2, True) == [[], []]
    for size in range(1, 9):
        dealt = deal(found, size, False)
        assert sorted(g for own in dealt for g in own) == found


def test_groups(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    _, found = write(tmp_path, [3, 2], [], [4])
    assert [(g.path.rpartition("/")[2], g.place, g.rows) for g in found] == [
        ("part-0.parquet", 0, 3), ("part-0.parquet", 1, 2), ("part-2.parquet", 0, 4)]  # fmt: skip
    assert all(g.bytes > 0 for g in found)


def test_in_order(tmp_path):
    store, found = write(tmp_path, [3, 2], [4])
    reader = Reader(found, store.arrow_fs, ["x"])
    assert xs(reader.batches(0, 4, None)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert xs(reader.batches(0, 4, 3)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 0, 1, 2]]
    assert xs(reader.batches(7, 20, 1)) == [[*range(9), *range(9), 0, 1]]
    assert xs(reader.batches(0, 4, 0)) == [] == xs(Reader([], None, ["x"]).batches(0, 4, None))


def test_types(tmp_path):
    store, found = write(tmp_path, [3])
    (batch,) = Reader(found, store.arrow_fs, ["v", "x"]).batches(0, 3, None)
    assert batch["v"].tolist() == [[0, 0], [1, -1], [2, -2]] and batch["x"].shape == (3,)
    assert {array.dtype for array in batch.values()} == {np.dtype("float32")}


def test_shuffled(tmp_path):
    store, found = write(tmp_path, [40] * 5)

    def order(epoch, seed=(1, 0), **more):
        reader = Reader(found, store.arrow_fs, ["x"], seed, **more)
        return [int(x) for batch in xs(reader.batches(epoch, 16, None)) for x in batch]

    assert order(0) == order(0) and len({tuple(order(e)) for e in range(4)}) == 4
    assert order(0) != order(0, (1, 1)) != order(0, (2, 1))
    assert sorted(order(3)) == list(range(200))
    near = order(0, window_rows=40)  # the rows of a group stay together
    blocks = [near[at : at + 40] for at in range(0, 200, 40)]
    starts = [min(block) for block in blocks]
    assert all(sorted(block) == list(range(at, at + 40)) for at, block in zip(starts, blocks))
    assert starts != sorted(starts) and near != sorted(near)
    far = order(0)  # one window: they do not
    assert any(max(far[:40]) - min(far[:40]) > 40 for _ in [0])


class Counted(LocalFileSystem):
    """Counts which bytes of which file are read."""

    cachable = False

    def __init__(self):
        super().__init__()
        self.reads = []

    def _open(self, path, *args, **kwargs):
        file, reads = super()._open(path, *args, **kwargs), self.reads
        read = file.f.read

        class Raw:
            def __getattr__(self, name):
                return getattr(file.f, name)

            def read(self, count=-1):
                at = file.f.tell()
                data = read(count)
                reads.append((path, at, at + len(data)))
                return data

        return Raw()


FOOTER_BYTES = 1 << 16  # from the end, that pyarrow reads to find a file's row groups


def places(path):
    """Where the column x of each row group of the file is."""
    meta, found = pq.read_metadata(path), []
    for i in range(meta.num_row_groups):
        column = meta.row_group(i).column(0)
        begin = column.dictionary_page_offset or column.data_page_offset
        found.append((begin, begin + column.total_compressed_size))
    return found


def test_reads_its_own_only(tmp_path):
    _, found = write(tmp_path, *[[20000] * 3 for _ in range(4)])
    once = 0
    for rank, own in enumerate(deal(found, 5, False)):
        counted = Counted()
        reader = Reader(own, fs.PyFileSystem(fs.FSSpecHandler(counted)), ["x"], (0, rank))
        got = [x for batch in xs(reader.batches(0, 640, None)) for x in batch]
        assert len(got) == rows.rows(own) == len(set(got))
        assert {path for path, *_ in counted.reads} == {group.path for group in own}
        data = set()
        for path, begin, end in counted.reads:
            size = (tmp_path / path).stat().st_size
            if end < size or end - begin > FOOTER_BYTES:
                data.add((path, begin, end))
        assert data == {(group.path, *places(group.path)[group.place]) for group in own}
        once += len(data)
    assert once == len(found)


class Remembering(Reader):
    def __init__(self, *args, **given):
        self.seen = []
        super().__init__(*args, **given)

    def _read(self, group):
        self.seen.append(group.place)
        return super()._read(group)


def test_cache(tmp_path):
    store, found = write(tmp_path, [5, 5])
    for cache, reads in ((False, 4), (True, 2)):
        reader = Remembering(found, store.arrow_fs, ["x"], cache=cache)
        for epoch in (0, 1):
            assert len(xs(reader.batches(epoch, 5, 2))) == 2
        assert len(reader.seen) == reads


def test_steps_read_no_more(tmp_path):
    """A step more than there are rows begins again; no window is read for nothing."""
    store, found = write(tmp_path, [4] * 6)
    for steps in (1, 2, 6, 7):
        reader = Remembering(found, store.arrow_fs, ["x"], window_rows=4)
        assert len(xs(reader.batches(0, 4, steps))) == steps
        assert reader.seen == [*range(6), 0][:steps]


def test_changed(tmp_path):
    store, found = write(tmp_path, [3])

    def change(row):
        assert isinstance(row["v"], np.ndarray)
        return {"x": row["x"] * 10, "w": row["v"][:1]}

    for seed in (None, (0, 0)):
        batches = list(
            Reader(found, store.arrow_fs, ["x", "v"], seed, change=change).batches(0, 2, 2)
        )
        assert [batch["w"].shape for batch in batches] == [(2, 1), (2, 1)]
        assert all(b["x"].dtype == np.float32 for b in batches)
        assert sorted({x for b in batches for x in b["x"].tolist()}) == [0, 10, 20]


@pytest.mark.parametrize(("values", "kind", "says"), [
    ([1, None], pyarrow.int32(), "column 'c' has nulls"),
    ([[1.0], None], pyarrow.list_(pyarrow.float64()), "column 'c' has nulls"),
    ([[1.0], [None]], pyarrow.list_(pyarrow.float64()), "column 'c' has nulls"),
    ([[1.0], [1.0, 2.0]], pyarrow.list_(pyarrow.float64()), "'c' has rows of 1 to 2 elements"),
    ([[], [1.0]], pyarrow.list_(pyarrow.float64()), "column 'c' has rows of 0 to 1 elements"),
    ([[[1], [2, 3]], [[1, 2], [3]]], pyarrow.list_(pyarrow.list_(pyarrow.int8())), "1 to 2 ele"),
    (["a"], pyarrow.string(), "column 'c' has string: a model takes numbers"),
    ([(1 << 24) + 1], pyarrow.int64(), "column 'c' has the integer 16777217"),
    ([-(1 << 60), 5], pyarrow.int64(), "column 'c' has the integer -1152921504606846976"),
])  # fmt: skip
def test_refused(values, kind, says):
    with pytest.raises(ValueError, match=says):
        dense(pyarrow.array(values, kind), "c")


def test_dense():
    def made(values, kind):
        return dense(pyarrow.array(values, kind), "c")

    nested = [[[1, 2], [3, 4], [5, 6]]] * 2
    assert made(nested, pyarrow.list_(pyarrow.list_(pyarrow.uint16()))).tolist() == nested
    assert made([True, False], pyarrow.bool_()).astype("f").tolist() == [1, 0]
    assert made([1 << 24, -(1 << 24)], pyarrow.int64()).astype("f").tolist() == [
        2.0**24,
        -(2.0**24),
    ]
    assert math.isnan(made([float("nan")], pyarrow.float64())[0])  # a number as others
    sliced = pyarrow.array([[1.0, 2.0]] * 4, pyarrow.list_(pyarrow.float32())).slice(1, 2)
    assert dense(sliced, "c").shape == (2, 2)
    array = pyarrow.array(np.arange(6, dtype="float32"))
    assert dense(array, "c").ctypes.data == array.buffers()[1].address  # without a copy
    chunks = pyarrow.chunked_array([array.slice(0, 2), array.slice(2)])
    assert dense(chunks, "c").tolist() == list(range(6))


def test_lengths_of_groups(tmp_path):
    for i, length in enumerate((2, 3)):
        table = pyarrow.table({"v": pyarrow.array([[1.0] * length] * 4)})
        pq.write_table(table, tmp_path / f"{i}.parquet")
    store = Store.create(str(tmp_path))
    found = rows.groups(store.get_parquet_dataset(store.prefix_path))
    for window in (None, 1):
        with pytest.raises(ValueError, match="column 'v' has rows of 2 to 3 elements"):
            list(Reader(found, store.arrow_fs, ["v"], window_rows=window).batches(0, 4, None))


def test_store(tmp_path, monkeypatch):
    store = Store.create(str(tmp_path / "a b"))
    assert store.get_train_data_path() == f"{store.prefix_path}/intermediate_train_data"
    assert store.get_val_data_path(3).endswith("/intermediate_val_data.3")
    file = store.get_checkpoint_file("r")
    assert file == f"{store.get_checkpoint_path('r')}/checkpoint" and not store.exists(file)
    for data in (b"1" * 100, b"2"):
        store.write(file, data)
        assert store.read(file) == data
    assert [p.name for p in (tmp_path / "a b" / "runs" / "r").iterdir()] == ["checkpoint"]
    store.remove(store.get_run_path("r"))
    store.remove(store.get_run_path("r"))
    assert not store.exists(file) and not store.is_parquet_dataset(store.prefix_path)
    moved = LocalStore(str(tmp_path), train_path=str(tmp_path / "t"), save_runs=False)
    assert moved.get_train_data_path() == f"file://{tmp_path}/t"
    assert moved.get_checkpoint_path("r") is None and not moved.saving_runs()


def test_a_write_that_fails(tmp_path, monkeypatch):
    """A full disk, say: what was there before is there still, and nothing else."""
    store = Store.create(str(tmp_path))
    path = store.get_checkpoint_file("r")
    store.write(path, b"first")
    names = {*tmp_path.rglob("*")}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            store.write(path, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert store.read(path) == b"first" and {*tmp_path.rglob("*")} == names

    def stopped(source, target):
        raise KeyboardInterrupt  # in the last moment

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        store.write(path, b"second")
    assert store.read(path) == b"first" and {*tmp_path.rglob("*")} == names


def test_names_of_stores(monkeypatch):
    s3 = Store.create("s3://bucket/x")
    assert s3.get_spark_path(s3.get_train_data_path()) == "s3a://bucket/x/intermediate_train_data"
    assert isinstance(Store.create("hdfs://n:8020/x"), HDFSStore)
    assert HDFSStore("/x").get_train_data_path(1) == "hdfs:///x/intermediate_train_data.1"
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15")
    for path in ("dbfs:/x", "/dbfs/x", "file:///dbfs/x", "file:/dbfs/x"):
        store = Store.create(path)
        assert isinstance(store, DBFSLocalStore) and store.prefix_path == "file:///dbfs/x"
    with pytest.raises(ValueError, match="not below"):
        DBFSLocalStore("/x")
    assert isinstance(Store.create("dbfs://x/y"), Store)
