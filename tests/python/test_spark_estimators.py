# SPDX-License-Identifier: Apache-2.0
"""Estimators on a real Spark of two executors. Where the number of ranks does not matter, the rank
is this process; else ranks are those of halay.spark.run."""

import io
import os
import signal
import sys
import threading
import time

import pytest
from spark_bed import pyspark_or_skip

pytestmark = pytest.mark.sampled

pyspark = pyspark_or_skip()
for needed in ("pyarrow", "pandas", "fsspec", "torch"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install {needed}")

import torch  # noqa: E402
from pyspark.ml import Pipeline, PipelineModel  # noqa: E402
from pyspark.ml.feature import VectorAssembler  # noqa: E402
from pyspark.ml.linalg import Vectors  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import halay.torch as hvd  # noqa: E402
from halay.horovod import SHIM  # noqa: E402
from halay.spark import WorkerLost  # noqa: E402
from halay.spark.backend import Backend, SparkBackend  # noqa: E402
from halay.spark.estimator import EstimatorParams  # noqa: E402
from halay.spark.store import LocalStore, Store  # noqa: E402
from halay.spark.torch import TorchEstimator, TorchModel  # noqa: E402
from halay.spark.torch.trainer import packed  # noqa: E402

pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
long = pytest.mark.long
LATE_S = 300  # for ranks to start, where others have the cores


@pytest.fixture(scope="module")
def spark(spark_context):
    patch = pytest.MonkeyPatch()
    patch.setenv("HOROVOD_SPARK_START_TIMEOUT", str(LATE_S))
    yield SparkSession(spark_context)
    patch.undo()


class Here(Backend):
    """One rank: this process."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


@pytest.fixture(autouse=True)
def ended():
    yield
    hvd.shutdown()


@pytest.fixture
def store(tmp_path):
    """After each test nothing is in it but runs."""
    yield Store.create(str(tmp_path / "store"))
    left = {path.name for path in (tmp_path / "store").glob("*")}
    assert left <= {"runs"}


def model(inputs=2, outputs=1):
    torch.manual_seed(inputs + 10 * outputs)
    return torch.nn.Linear(inputs, outputs)


def estimator(store, own=None, **given):
    own = own or model()
    settings = {
        "store": store,
        "model": own,
        "optimizer": torch.optim.SGD(own.parameters(), lr=0.05, momentum=0.5),
        "loss": F.mse_loss,
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "input_shapes": [[-1, 2]],
        "partitions_per_process": 1,
        "random_seed": 7,
        "verbose": 0,
    }
    settings.update(given)
    if "num_proc" not in settings:
        settings.setdefault("backend", Here())
    return TorchEstimator(**{k: v for k, v in settings.items() if v is not None})


def points(count):
    """Rows of a, b and y, which is almost 2a - b + 0.5."""
    return [(i % 7 - 3.0, i % 5 - 2.0, 2.0 * (i % 7 - 3) - (i % 5 - 2) + 0.5 + i % 3 / 9, i)
            for i in range(count)]  # fmt: skip


def frame(spark, count):
    """Its vectors are dense and sparse."""
    made = [
        (Vectors.dense([a, b]) if i % 2 else Vectors.sparse(2, {0: a, 1: b}), y, i)
        for a, b, y, i in points(count)
    ]
    return spark.createDataFrame(made, ["x", "y", "i"])


def reference(own, batches, lr, weights=None, momentum=0.5):
    """Losses of a serial training on batches of (x, y[, w]); the model has it behind it."""
    optimizer = torch.optim.SGD(own.parameters(), lr=lr, momentum=momentum)
    found = []
    for x, y, *w in batches:
        optimizer.zero_grad()
        each = (own(x)[:, 0] - y) ** 2
        loss = (each * w[0]).mean() if w else each.mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def tensors(made):
    table = torch.tensor([row[:3] for row in made])
    return table[:, :2], table[:, 2]


def near(one, other):
    one, other = (torch.as_tensor(value).double() for value in (one, other))
    assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def same(one, other):
    """Models, bit by bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_pipeline(spark, store, tmp_path):
    """Two ranks train as one process would; the pipeline predicts, also when saved and loaded."""
    df = spark.createDataFrame(points(32), ["a", "b", "y", "i"])
    stages = [
        VectorAssembler(inputCols=["a", "b"], outputCol="x"),
        estimator(store, num_proc=2, batch_size=16, epochs=3, metrics=[[F.l1_loss]]),
    ]
    fitted = Pipeline(stages=stages).fit(df)
    trained = fitted.stages[1]
    own, (x, y) = model(), tensors(points(32))
    losses = reference(own, [(x, y)] * 3, 0.1)
    near(trained.getModel().weight.detach(), own.weight.detach())
    near(trained.getModel().bias.detach(), own.bias.detach())
    near([epoch["train"]["loss"] for epoch in trained.getHistory()], losses)
    assert not trained.getModel().training
    near(trained.getOptimizer().param_groups[0]["lr"], 0.05)
    assert [list(epoch["train"]["all_metrics"][0]) for epoch in trained.getHistory()] == [
        ["group_0_y"]
    ] * 3
    saved = torch.load(io.BytesIO(store.read(store.get_checkpoint_file(trained.getRunId()))))
    assert torch.equal(saved["model"]["weight"], trained.getModel().weight)
    assert saved["epoch"] == 3 and len(saved["history"]) == 3

    fitted.save(str(tmp_path / "pipeline"))
    loaded = PipelineModel.load(str(tmp_path / "pipeline"))
    for one in (fitted, loaded):
        got = one.transform(df).orderBy("i").collect()
        with torch.no_grad():
            near([row["y__output"] for row in got], trained.getModel()(x)[:, 0].double())
        assert [row["i"] for row in got] == list(range(32))
    assert loaded.stages[1].getRunId() == trained.getRunId()


def parquet(spark, path, parts):
    """Files with these rows each, in this order."""
    for part in parts:
        made = [([a, b], y, 1.0 + i % 2) for a, b, y, i in part]
        df = spark.createDataFrame(made, "x array<float>, y double, w float").coalesce(1)
        df.write.mode("append").parquet(path)


@long
def test_same_batches(spark, tmp_path):
    """Batch by batch, weights included, what a process does that has the batches of all ranks; a
    rank with fewer rows begins again. What was there before stays."""
    store = Store.create(str(tmp_path))
    made = points(40)
    parquet(spark, store.get_train_data_path(), [made[:12], made[12:20]])
    parquet(spark, store.get_val_data_path(), [made[20:25], made[25:26], made[26:28]])
    files = sorted(tmp_path.rglob("*.parquet"))
    given = {"num_proc": 2, "batch_size": 4, "epochs": 2, "shuffle": False, "validation": 0.5}
    fitted = estimator(store, sample_weight_col="w", val_batch_size=3, **given).fit_on_parquet()

    first, second, third = made[0:4], made[4:8], made[8:12]
    other, more = made[12:16], made[16:20]
    batches = [first + other, second + more, third + other] * 2
    own = model()
    losses = reference(
        own, [(*tensors(b), torch.tensor([1.0 + row[3] % 2 for row in b])) for b in batches], 0.1
    )
    near(fitted.getModel().weight.detach(), own.weight.detach())
    history = fitted.getHistory()
    near([e["train"]["loss"] for e in history], [sum(losses[:3]) / 3, sum(losses[3:]) / 3])
    x, y = tensors(made[20:28])
    w = torch.tensor([1.0 + row[3] % 2 for row in made[20:28]])
    with torch.no_grad():
        near(history[1]["validation"]["loss"], float(((own(x)[:, 0] - y) ** 2 * w).mean()))
    assert sorted(tmp_path.rglob("*.parquet")) == files


@long
def test_validation(spark, store):
    """Every row is either trained on or validated, once."""
    df = frame(spark, 100).withColumn("part", (pyspark.sql.functions.col("i") % 4 == 0).cast("int"))
    count = [[lambda output, label: torch.tensor(float(len(output)))]]
    common = {"metrics": count, "epochs": 2, "batch_size": 1000}
    for column in ("part", "flag"):
        chosen = df.withColumn("flag", pyspark.sql.functions.col("part") == 1)
        fitted = estimator(store, validation=column, **common).fit(chosen)
        for epoch in fitted.getHistory():
            assert epoch["train"]["all_metrics"] == [{"group_0_y": 75}]
            assert epoch["validation"]["all_metrics"] == [{"group_0_y": 25}]
        x, y = tensors([row for row in points(100) if row[3] % 4 == 0])
        with torch.no_grad():
            near(epoch["validation"]["loss"], float(F.mse_loss(fitted.getModel()(x)[:, 0], y)))
    (epoch,) = estimator(store, validation=0.3, **{**common, "epochs": 1}).fit(df).getHistory()
    trained = epoch["train"]["all_metrics"][0]["group_0_y"]
    assert epoch["validation"]["all_metrics"][0]["group_0_y"] == 100 - trained
    assert 15 < 100 - trained < 45
    (epoch,) = estimator(store, validation=0.3, **{**common, "epochs": 1}).fit(df).getHistory()
    assert epoch["train"]["all_metrics"][0]["group_0_y"] == trained  # the seed says which


@long
def test_same_bits(spark, store):
    """The same rows and seed, however the rows are spread, make the same model; others do not."""
    df = frame(spark, 64)
    given = {"batch_size": 8, "epochs": 2, "partitions_per_process": 2}

    def trained(df, **more):
        return estimator(store, **{**given, **more}).fit(df).getModel()

    first = trained(df)
    assert same(first, trained(df)) and same(first, trained(df, inmemory_cache_all=True))
    assert not same(first, trained(df, random_seed=8))
    assert not same(first, trained(df, shuffle=False))
    assert same(trained(df, shuffle=False), trained(df, shuffle_buffer_size=0))


@long
def test_weights(spark, store):
    """A row whose weight is 0 might as well not be there but for the mean; losses without
    reduction= are asked by their attribute."""
    df = frame(spark, 32).selectExpr("x", "y", "float(i % 2) as w")
    x, y = tensors(points(32))
    for loss in (F.mse_loss, torch.nn.MSELoss()):
        given = {"sample_weight_col": "w", "batch_size": 32, "epochs": 2, "loss": loss}
        fitted = estimator(store, **given).fit(df)
        own = model()
        reference(own, [(x, y, torch.arange(32) % 2)] * 2, 0.05)
        near(fitted.getModel().weight.detach(), own.weight.detach())


@long
def test_outputs(spark, store):
    """Two inputs, two outputs with losses and weights of their own, integers, arrays."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = model(2, 3), model(1, 1)

        def forward(self, v, s):
            assert v.shape[1:] == (1, 2) and s.dim() == 2
            return self.one(v[:, 0]), self.other(s)

    own = Two()
    made = [([a, b], i % 4, [a, b, a], i, {"k": bytearray(b"v")}) for a, b, _, i in points(24)]
    df = spark.createDataFrame(
        made, "v array<double>, `s.s` int, l array<float>, n long, o map<string, binary>"
    )
    given = {
        "feature_cols": ["v", "s.s"],
        "label_cols": ["l", "n"],
        "input_shapes": [[1, 2], [1]],
        "loss": [F.mse_loss, F.l1_loss],
        "loss_weights": [0.25, 0.75],
        "batch_size": 24,
        "metrics": [[F.l1_loss], [F.mse_loss, F.l1_loss]],
        "backward_passes_per_step": 1,
    }
    fitted = estimator(store, own, **given).fit(df)
    v, s = torch.tensor([m[0] for m in made])[:, None], torch.tensor([[float(m[1])] for m in made])
    l, n = torch.tensor([m[2] for m in made]), torch.tensor([[float(m[3])] for m in made])  # noqa: E741
    with torch.no_grad():
        a, b = Two()(v, s)
    (epoch,) = fitted.getHistory()
    near(epoch["train"]["loss"], float(0.25 * F.mse_loss(a, l) + 0.75 * F.l1_loss(b, n)))
    assert [list(group) for group in epoch["train"]["all_metrics"]] == [
        ["group_0_l", "group_0_n"], ["group_1_l", "group_1_n"]]  # fmt: skip
    near(epoch["train"]["all_metrics"][1]["group_1_l"], float(F.mse_loss(a, l)))
    got = fitted.setOutputCols(["p", "q"]).transform(df)
    assert [(f.name, f.dataType.simpleString()) for f in got.schema.fields[-2:]] == [
        ("p", "vector"), ("q", "bigint")]  # fmt: skip
    found = got.orderBy("n").collect()
    with torch.no_grad():
        a, b = fitted.getModel()(v, s)
    near([row["p"].toArray().tolist() for row in found], a.double())
    assert [row["q"] for row in found] == [round(float(one)) for one in b]
    assert [row["o"] for row in found] == [m[4] for m in made]  # as it was
    with pytest.raises(ValueError, match="has a column 'n' already"):
        fitted.setOutputCols(["p", "n"]).transform(df)
    with pytest.raises(ValueError, match="there is no column 'v'"):
        fitted.setOutputCols(["p", "q"]).transform(df.drop("v"))


@long
def test_own_functions(spark, store, tmp_path):
    """Rows transformed, losses by constructors, a batch's own training, accumulated steps."""
    made = [(f"{a} {b}", y) for a, b, y, _ in points(30)]
    df = spark.createDataFrame(made, ["text", "y"])

    def change(row):
        return {"text": list(map(float, row["text"].split())), "y": row["y"]}

    log = tmp_path / "log"

    def batch(model, optimizer, match, loss_of, inputs, labels, weights, passes, index):
        if index % passes == 0:
            if index:
                optimizer.step()
            optimizer.zero_grad()
        outputs, labels = match(model(*inputs), labels)
        loss = loss_of(outputs, labels, weights)
        (loss / passes).backward()
        with open(log, "a") as file:
            file.write(f"{len(inputs[0])} {index}\n")
        return outputs, loss

    def constructor(**_):
        return F.mse_loss

    given = {
        "feature_cols": ["text"],
        "loss": None,
        "loss_constructors": [constructor],
        "transformation_fn": change,
        "batch_size": 15,
        "backward_passes_per_step": 2,
        "shuffle": False,
    }
    one = estimator(store, **given).fit(df)
    given["train_minibatch_fn"] = batch
    other = estimator(store, **given).fit(df)
    assert log.read_text() == "15 0\n15 1\n"
    own, (x, y) = model(), tensors(points(30))
    reference(own, [(x, y)], 0.05)  # two batches, one step
    for fitted in (one, other):
        near(fitted.getModel().weight.detach(), own.weight.detach())
    limited = estimator(store, **{**given, "train_steps_per_epoch": 5, "epochs": 2}).fit(df)
    assert log.read_text().split()[5::2] == [*"01234"] * 2
    assert len(limited.getHistory()) == 2


@long
def test_one_row(spark, store):
    """Fewer rows than ranks, and partitions without any: nobody waits for a rank without rows."""
    df = frame(spark, 1).repartition(8)
    given = {"num_proc": 2, "batch_size": 4, "epochs": 2, "partitions_per_process": 4}
    fitted = estimator(store, **given).fit(df)
    own, (x, y) = model(), tensors(points(1))
    reference(own, [(x, y)] * 2, 0.1)
    near(fitted.getModel().weight.detach(), own.weight.detach())


BAD = {
    "nulls": ("x", "if(i=3, null, y) as y", {}, "column 'y' has nulls in 1 of 8 rows: drop or"),
    "null_vectors": ("if(i<2, null, x) as x", "y", {}, "column 'x' has nulls in 2 of 8 rows"),
    "null_elements": ("array(y, if(i=5, null, y)) as x", "y", {}, "'x' has nulls in 1 of 8 rows"),
    "null_validation": ("x", "y", {"validation": "nothing"}, "'halay_validation' has nulls in 8"),
    "uneven": ("if(i=2, array(y), array(y, y)) as x", "y", {}, "'x' has rows of 1 to 2 elements"),
    "strings": ("string(y) as x", "y", {}, "column 'x' is of type string: a model takes numbers"),
    "decimals": ("cast(y as decimal(9, 2)) as x", "y", {}, r"'x' is of type decimal\(9,2\)"),
    "no_column": ("y", "i", {}, r"no column 'x' in the DataFrame: \['y', 'i'"),
    "no_label": ("x", "i", {}, "there is no column 'y' in the DataFrame"),
    "mark": (
        "x as halay_validation",
        "y",
        {"feature_cols": ["halay_validation"], "validation": 0.5},
        "the column name 'halay_validation' is taken",
    ),
    "size": ("array(y, y, y) as x", "y", {}, r"'x' has 3 elements a row, shape \[-1, 2\] 2"),
    "large": ("array(16777217, i) as x", "y", {}, "column 'x' has the integer 16777217"),
    "shapes": ("x", "y", {"input_shapes": [[2], [2]]}, "input_shapes has 2 elements for 1 col"),
    "validation": ("x", "y", {"validation": 1.0}, "validation must be from 0 to 1"),
    "validation_type": ("x", "y", {"validation": [1]}, "a float or a column's name"),
    "no_validation": ("x", "y", {"validation": "zero"}, "there are no rows for validation"),
    "all_validation": ("x", "y", {"validation": "one"}, "there are no rows to train on"),
    "batch": ("x", "y", {"batch_size": 0}, "batch_size must be at least 1"),
    "model": ("x", "y", {"model": None}, "parameter model is missing"),
    "loss": ("x", "y", {"loss": None}, "parameter loss is missing"),
    "losses": ("x", "y", {"loss": [F.mse_loss] * 2}, "loss has 2 elements for 1 label columns"),
}


@long
@pytest.mark.parametrize("case", BAD)
def test_bad_input(spark, store, case):
    x, y, given, says = BAD[case]
    more = ["i", "int(null) as nothing", "0 as zero", "1 as one"]
    df = frame(spark, 8).selectExpr(x, y, *more)
    with pytest.raises(ValueError, match=says):
        one = estimator(store, **given)
        if "model" in given:
            one = one.copy()
            one.clear(one.model)
        one.fit(df)


@long
def test_more_bad_input(spark, store):
    df = frame(spark, 8)
    with pytest.raises(ValueError, match="there are no rows to train on"):
        estimator(store).fit(df.where("i > 100"))
    vectors = spark.createDataFrame([(Vectors.dense([1.0] * (1 + i % 2)), 1.0) for i in range(4)],
                                    ["x", "y"])  # fmt: skip
    with pytest.raises(ValueError, match="column 'x' has rows of 1 to 2 elements"):
        estimator(store).fit(vectors)
    with pytest.raises(TypeError, match="TorchEstimator has no parameter 'batchsize'"):
        estimator(store, batchsize=3)
    with pytest.raises(ValueError, match="exclude each other"):
        estimator(store, loss_constructors=[lambda **_: F.mse_loss])
    with pytest.raises(ValueError, match="exclude each other"):
        estimator(store, backend=Here(), num_proc=2).fit(df)
    other = model(5)
    wrong = torch.optim.Adam([*other.parameters(), torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(ValueError, match="3 parameters that are not the model's, which has 2"):
        estimator(store, optimizer=wrong).fit(df)
    with pytest.raises(TypeError, match="TorchScript"):
        estimator(store, torch.jit.trace(model(), torch.zeros(1, 2))).fit(df)
    with pytest.raises(ValueError, match="there is no Parquet at"):
        estimator(store).fit_on_parquet()
    nulls = df.selectExpr("if(i=1, null, x) as x", "y")
    fitted = TorchModel(model=model(), feature_columns=["x"], label_columns=["y"])
    with pytest.raises(Exception, match="column 'x' has nulls"):
        fitted.setInputShapes([[2]]).transform(nulls).collect()


class Locked(torch.nn.Linear):
    """Cannot be pickled."""

    def __init__(self):
        super().__init__(2, 1)
        self.lock = threading.Lock()


def test_refused(spark, store, tmp_path):
    """What cannot be sent, and checkpoints that are none, or another's."""
    df = frame(spark, 8)
    with pytest.raises(TypeError, match="the parameter model cannot be pickled"):
        estimator(store, Locked()).fit(df)
    file = store.get_checkpoint_file("r")
    lightnings = {"model": {}, "lightning": 1, "size": 1, "seed": 1, "epoch": 1, "epochs": 1}
    for data in (b"", b"rubbish", packed({"model": {}}), packed({**lightnings, "history": []})):
        store.write(file, data)
        with pytest.raises(ValueError, match=r"runs/r/checkpoint is no checkpoint of a halay\."):
            estimator(store, run_id="r").fit(df)
    others = torch.nn.Sequential(model())
    state = {"model": others.state_dict(), "optimizer": {}, "epoch": 1, "epochs": 1, "seed": 1}
    store.write(file, packed({**state, "history": []}))
    with pytest.raises(ValueError, match="run 'r' is of another model, so give another run_id"):
        estimator(store, run_id="r").fit(df)
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="could not write the rows below .*/file: .* not a"):
        estimator(Store.create(str(tmp_path / "file"))).fit(df)


@long
def test_store_that_is_not_shared(spark, tmp_path):
    class Elsewhere(LocalStore):
        def get_spark_path(self, path):
            return path + ".of.another.node"

    store = Elsewhere(str(tmp_path))
    with pytest.raises(RuntimeError, match="has written 8 rows below .*, this process finds 0"):
        estimator(store).fit(frame(spark, 8))


@long
def test_rank_raises(spark, store):
    """What a rank finds comes as it is; nothing hangs, nothing is left."""
    df = frame(spark, 8).selectExpr("array(16777217, i) as x", "y")
    with pytest.raises(ValueError, match="column 'x' has the integer 16777217"):
        estimator(store, num_proc=2).fit(df)


def ends(flag):
    """A batch's training that ends its executor once: rank 1, in the second epoch."""
    from halay.spark.torch.trainer import minibatch

    epochs = []

    def batch(model, optimizer, match, loss_of, inputs, labels, weights, passes, index):
        epochs.extend([index] if index == 0 else [])
        if hvd.rank() == 1 and len(epochs) == 2 and not os.path.exists(flag):
            open(flag, "w").close()
            pid = os.getpid()
            for _ in range(4):  # guard, worker, daemon, executor
                with open(f"/proc/{pid}/stat") as file:
                    pid = int(file.read().rpartition(")")[2].split()[1])
            os.kill(pid, signal.SIGKILL)
            time.sleep(1000)  # its guard ends it
        return minibatch(model, optimizer, match, loss_of, inputs, labels, weights, passes, index)

    return batch


@long
def test_executor_lost(spark, store, tmp_path):
    """fit() says who is lost, and goes on where it was: to the same bits as without the loss."""
    df = frame(spark, 64)
    batch = ends(str(tmp_path / "killed"))
    own = torch.nn.Sequential(model(), torch.nn.Dropout(0.5))
    given = {"num_proc": 2, "epochs": 3, "batch_size": 8, "train_minibatch_fn": batch}
    given["random_seed"] = None  # drawn, and kept with the run
    with pytest.raises(WorkerLost) as caught:
        estimator(store, own, run_id="r", **given).fit(df)
    assert 1 in {loss.rank for loss in caught.value.losses}
    if hasattr(caught.value, "add_note"):
        assert "fit() with run_id='r' goes on" in caught.value.__notes__[-1]
    saved = torch.load(io.BytesIO(store.read(store.get_checkpoint_file("r"))))
    assert (saved["epoch"], saved["epochs"]) == (1, 3)
    resumed = estimator(store, own, run_id="r", **given).fit(df)
    assert [epoch["epoch"] for epoch in resumed.getHistory()] == [0, 1, 2]
    given["random_seed"] = saved["seed"]
    whole = estimator(store, own, run_id="s", **given).fit(df)
    assert resumed.getHistory() == whole.getHistory()
    assert same(resumed.getModel(), whole.getModel())


@long
def test_runs(spark, store):
    """A finished run is trained further; save_runs=False keeps nothing."""
    df, (x, y) = frame(spark, 16), tensors(points(16))
    given = {"run_id": "r", "batch_size": 16, "epochs": 2}
    estimator(store, **given).fit(df)
    fitted = estimator(store, **given).fit(df)
    own = model()
    reference(own, [(x, y)] * 4, 0.05)
    near(fitted.getModel().weight.detach(), own.weight.detach())
    assert [epoch["epoch"] for epoch in fitted.getHistory()] == [0, 1]
    assert store.exists(f"{store.get_logs_path('r')}/history.json")
    kept = Store.create(f"{store.prefix_path}/not", save_runs=False)
    estimator(kept, **given).fit(df)
    assert not store.exists(kept.get_runs_path())
    store.remove(kept.prefix_path)


@long
def test_groups_of_parameters(spark, store):
    """Each keeps its own learning rate; frozen parameters stay."""
    own = torch.nn.Sequential(model(2, 3), model(3, 1))
    own[0].bias.requires_grad_(False)
    groups = [{"params": [own[1].weight, own[1].bias], "lr": 0.01}, {"params": [own[0].weight]}]
    optimizer = torch.optim.AdamW(groups, lr=0.02)
    fitted = estimator(store, own, optimizer=optimizer, batch_size=16, epochs=3).fit(
        frame(spark, 16)
    )
    serial = torch.nn.Sequential(model(2, 3), model(3, 1))
    serial[0].bias.requires_grad_(False)
    groups = [
        {"params": [serial[1].weight, serial[1].bias], "lr": 0.01},
        {"params": [serial[0].weight]},
    ]
    optimizer, (x, y) = torch.optim.AdamW(groups, lr=0.02), tensors(points(16))
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(serial(x)[:, 0], y).backward()
        optimizer.step()
    for name, value in serial.state_dict().items():
        near(fitted.getModel().state_dict()[name], value)
    made = fitted.getOptimizer()
    assert [group["lr"] for group in made.param_groups] == [0.01, 0.02]
    assert made.param_groups[1]["params"][0] is fitted.getModel()[0].weight


@long
def test_saved_estimator(spark, store, tmp_path):
    path = str(tmp_path / "saved")
    one = estimator(store, batch_size=16, epochs=2, metrics=[[F.l1_loss]])
    Pipeline(stages=[one]).save(path)
    (loaded,) = Pipeline.load(path).getStages()
    assert loaded.uid == one.uid and loaded.getBatchSize() == 16 and loaded.getStore() is None
    assert loaded.getBackend() is None and same(loaded.getModel(), one.getModel())
    df = frame(spark, 16)
    fitted = loaded.setStore(store).setBackend(Here()).fit(df)
    assert same(fitted.getModel(), one.fit(df).getModel())
    assert not same(fitted.getModel(), one.getModel())  # which is as it was
    replaced = model(2, 1)
    one.setModel(replaced)  # the optimizer is the former one's
    assert same(one.fit(df).getModel(), fitted.getModel())


@long
def test_horovods_names(monkeypatch):
    monkeypatch.syspath_prepend(SHIM)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    import horovod.spark.common.backend
    import horovod.spark.common.estimator
    import horovod.spark.common.store
    import horovod.spark.torch as theirs

    assert theirs.TorchEstimator is TorchEstimator and theirs.TorchModel is TorchModel
    assert horovod.spark.common.backend.SparkBackend is SparkBackend
    assert horovod.spark.common.store.LocalStore is LocalStore
    names = """num_proc data_module model backend store optimizer loss loss_constructors metrics
        loss_weights sample_weight_col gradient_compression feature_cols continuous_cols
        categorical_cols input_shapes validation label_cols callbacks batch_size val_batch_size
        epochs verbose random_seed shuffle_buffer_size shuffle partitions_per_process run_id
        train_minibatch_fn train_steps_per_epoch validation_steps_per_epoch transformation_fn
        train_reader_num_workers val_reader_num_workers reader_pool_type label_shapes
        inmemory_cache_all use_gpu mp_start_method backward_passes_per_step"""
    assert set(names.split()) <= set(EstimatorParams._defaults)
    methods = """setNumProc getNumProc setModel getModel setBackend setStore setLoss getLoss
        setSampleWeightCol setMetrics setFeatureCols setLabelCols setValidation setBatchSize
        setValBatchSize setEpochs setTrainStepsPerEpoch setShufflingBufferSize setShuffle setRunId
        setTransformationFn setTrainReaderNumWorker setValReaderNumWorker setReaderPoolType
        setInMemoryCacheAll setUseGpu setMpStartMethod setBackwardPassesPerStep setInputShapes
        setLossConstructors setTrainMinibatchFn getOptimizer setOptimizer"""
    assert all(callable(getattr(TorchEstimator, name)) for name in methods.split())
    methods = "getHistory getModel getFeatureColumns getLabelColumns getRunId getOptimizer setLoss"
    assert all(callable(getattr(TorchModel, name)) for name in methods.split())


def net():
    """A LightningModule with the weights of model()."""
    import pytorch_lightning

    class Net(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = model()

        def forward(self, x):
            return self.inner(x)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.5)

        def _loss(self, batch):
            return F.mse_loss(self(batch["x"])[:, 0], batch["y"])

        def training_step(self, batch, index):
            loss = self._loss(batch)
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def validation_step(self, batch, index):
            self.log("val_loss", self._loss(batch), sync_dist=True)

    return Net()


def lightning(store, own, **given):
    pytest.importorskip("pytorch_lightning", reason="pip install lightning pytorch_lightning")
    from halay.spark.lightning import TorchEstimator as LightningEstimator

    one = estimator(store, own, **given)
    values = {param.name: value for param, value in one._paramMap.items()}
    if not isinstance(own, (torch.nn.Linear, torch.nn.Sequential)):
        del values["optimizer"], values["loss"]
    return LightningEstimator(**values)


@long
def test_lightning(spark, store):
    """Two ranks under Lightning's own strategy train as one process would, and go on as it."""
    pytest.importorskip("pytorch_lightning", reason="pip install lightning pytorch_lightning")
    df = frame(spark, 32).selectExpr("x", "y", "i", "false as val")
    both = df.union(df.selectExpr("x", "y", "i", "true as val"))
    given = {"num_proc": 2, "batch_size": 16, "validation": "val", "run_id": "r"}
    fitted = lightning(store, net(), epochs=2, **given).fit(both)
    fitted = lightning(store, net(), epochs=1, **given).fit(both)
    own, (x, y) = model(), tensors(points(32))
    losses = reference(own, [(x, y)] * 3, 0.1)
    near(fitted.getModel().inner.weight.detach(), own.weight.detach())
    (epoch,) = fitted.getHistory()
    near([epoch["loss"], epoch["epoch"]], [losses[2], 2])
    with torch.no_grad():
        near(epoch["val_loss"], float(F.mse_loss(own(x)[:, 0], y)))
        found = fitted.transform(df).orderBy("i").collect()
        near([row["y__output"] for row in found], own(x)[:, 0])


@long
def test_lightning_alone(spark, store):
    """A plain model, callbacks, and what is refused."""
    import halay.spark.lightning

    df, (x, y) = frame(spark, 16), tensors(points(16))
    import pytorch_lightning

    monitor = pytorch_lightning.callbacks.LearningRateMonitor()  # which wants a logger
    plain = lightning(store, model(), batch_size=16, epochs=2, validation=0.5)
    fitted = plain.setCallbacks([monitor]).fit(df)
    assert {"loss", "val_loss", "epoch", "lr-SGD"} == set(fitted.getHistory()[1])
    fitted = lightning(store, model(), batch_size=16, epochs=2).fit(df)
    own = model()
    losses = reference(own, [(x, y)] * 2, 0.05)
    near(fitted.getModel().weight.detach(), own.weight.detach())
    near([epoch["loss"] for epoch in fitted.getHistory()], losses)
    with pytest.raises(ValueError, match="optimizer is the LightningModule's own"):
        halay.spark.lightning.TorchEstimator(
            model=net(), optimizer=torch.optim.SGD(own.parameters(), lr=1), store=store,
            feature_cols=["x"], label_cols=["y"], backend=Here(),
        ).fit(df)  # fmt: skip
    bad = lightning(store, net(), batch_size=16, epochs=2).setTerminateOnNan(True)
    with pytest.raises(ValueError, match="the loss is nan in epoch 0"):
        bad.fit(df.selectExpr("x", "double('nan') as y"))
