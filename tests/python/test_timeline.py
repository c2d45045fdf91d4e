# SPDX-License-Identifier: Apache-2.0
"""Timelines of ranks: what stands in them, that they fit together, and merging them."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from conftest import environment

import halay.torch as hvd
from halay import timeline

pytestmark = pytest.mark.sampled

STEPS, TENSORS = 30, 5


def rank_training(folder, settings):
    """Steps of a few tensors, with a file that one of the two ways has asked for."""
    path = f"{folder}/t.json"
    pair = hvd.add_process_set([0, 1])
    if not settings:
        hvd.start_timeline(path, mark_cycles=True)
        with pytest.raises(ValueError, match=r"stop_timeline\(\) first"):
            hvd.start_timeline(path)
    begin = time.monotonic()
    for step in range(STEPS):
        with hvd.timeline_span(f"step {step}"):
            tensors = [torch.ones(16) for _ in range(TENSORS)]
            handles = [
                hvd.allreduce_async(tensor, name=f"w.{i}") for i, tensor in enumerate(tensors)
            ]
            for handle in handles:
                hvd.synchronize(handle)
    if hvd.rank() < 2:
        hvd.allreduce(torch.ones(2), name="w.0", process_set=pair)
    hvd.allgather(torch.ones(2), name="gathered")
    if hvd.rank() == hvd.size() - 1:
        time.sleep(0.2)
    hvd.barrier()
    hvd.stop_timeline()
    hvd.stop_timeline()
    return time.monotonic() - begin


def spans_of(events):
    """(ts, end, name) by (rank, row), in order."""
    rows, found = timeline.names(events), defaultdict(list)
    for e in (e for e in events if e["ph"] == "X"):
        row = rows[e["pid"], e["tid"]]
        found[e["pid"], row].append((e["ts"], round(e["ts"] + e["dur"], 3), e["name"]))
    return {key: sorted(spans, key=lambda s: (s[0], -s[1])) for key, spans in found.items()}


def check_nested(spans):
    """A viewer draws spans of a row in each other, or one after the other: no other way."""
    stack = []
    for begin, end, name in spans:
        while stack and stack[-1] <= begin:
            stack.pop()
        assert not stack or end <= stack[-1], f"{name} at {begin} sticks out of another span"
        stack.append(end)


@pytest.mark.parametrize("settings", [False, True])
def test_all_ranks_in_one_file(job, tmp_path, settings):
    names = ("HALAY_TIMELINE", "HALAY_TIMELINE_MARK_CYCLES")
    env = dict(zip(names, (str(tmp_path / "t.json"), "1"))) if settings else None
    seconds = job(3, rank_training, str(tmp_path), settings, env=env)
    parts = [str(tmp_path / "t.json"), *(str(tmp_path / f"t.json.rank{r}") for r in (1, 2))]
    command = [sys.executable, "-m", "halay.timeline", "merge", str(tmp_path / "all.json"), *parts]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with open(tmp_path / "all.json") as file:
        events = json.load(file)["traceEvents"]
    assert events == [event for part in parts for event in timeline.read(part)]

    spans = spans_of(events)
    for (rank, _), row in spans.items():
        if rank < 3:
            check_nested(row)
    for rank in range(3):
        weights = [name for _, _, name in spans[rank, "allreduce.w.3"]]
        assert weights.count("ALLREDUCE") == weights.count("QUEUE") == STEPS
        assert 0 < weights.count("NEGOTIATE_ALLREDUCE") < STEPS
        assert ("set 1 allreduce.w.0" in {row for r, row in spans if r == rank}) == (rank < 2)
        assert "HALAY_ALLGATHER" in [name for _, _, name in spans[rank, "allgather.gathered"]]
        steps = [s for s in spans[rank, "program"] if s[2].startswith("step ")]
        assert [name for _, _, name in steps] == [f"step {i}" for i in range(STEPS)]
        fused = {
            name for b in range(4) for _, _, name in spans.get((rank, f"fusion buffer {b}"), [])
        }
        assert fused >= {"MEMCPY_IN_FUSION_BUFFER", "HALAY_ALLREDUCE", "MEMCPY_OUT_FUSION_BUFFER"}
        cycles = [e for e in events if e["pid"] == rank and e["name"] == "CYCLE_START"]
        assert len(cycles) > STEPS / 2
        (first, last) = min(s[0] for s in steps), max(s[1] for s in steps)
        assert (last - first) / 1e6 <= seconds[rank]
    # One node has one clock: what all have to come to ends on no rank before it begins on another.
    ends = {rank: spans[rank, "allgather.gathered"][-1][1] for rank in range(3)}
    starts = {rank: spans[rank, "allgather.gathered"][0][0] for rank in range(3)}
    assert max(starts.values()) <= min(ends.values())


def test_cut_off(tmp_path, alone):
    path = tmp_path / "t.json"
    alone.start_timeline(path)
    alone.allreduce(torch.ones(2), name="a")
    alone.stop_timeline()
    text = path.read_bytes()
    whole = timeline.read(path)
    for size in range(2, len(text)):
        path.write_bytes(text[:size])
        events = timeline.read(path)
        assert events == whole[: len(events)]
    path.write_bytes(text[: len(text) // 2])
    (remark,) = timeline.merge(str(tmp_path / "all.json.gz"), [str(path)])
    assert "was cut off" in remark
    assert timeline.read(tmp_path / "all.json.gz") == timeline.read(path)


def test_files_that_cannot_be(tmp_path, alone):
    with pytest.raises(FileNotFoundError):
        alone.start_timeline(tmp_path / "no" / "where")
    alone.start_timeline("/dev/full")
    alone.allreduce(torch.ones(2))
    with pytest.raises(OSError, match="No space left"):
        alone.stop_timeline()
    alone.start_timeline(tmp_path / "again")
    alone.shutdown()
    assert timeline.read(tmp_path / "again")[-1]["name"] == "END"
    alone.init()


def test_what_cannot_be_merged(tmp_path, capsys):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text('[\n{"ph":"M","pid":0,"tid":0,"name":"x"}\n]\n')
    bad.write_text("{}")
    out = str(tmp_path / "out")
    assert timeline.main(["merge", out, str(good), str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    bad.write_text('[\n{"ph":"M"\n{}\n]\n')
    assert timeline.main(["merge", out, str(bad)]) == 1
    assert f"{bad}, line 2" in capsys.readouterr().err
    assert timeline.main(["merge", out, str(good), str(good)]) == 1
    assert "both of rank 0" in capsys.readouterr().err
    copy = Path(f"{good}.copy")
    copy.write_bytes(good.read_bytes())
    assert timeline.main(["merge", out, str(good), str(copy)]) == 1
    assert "both of rank 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        timeline.main(["merge", str(good), str(good)])
    assert os.path.getsize(good) > 0
