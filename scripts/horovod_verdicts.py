# SPDX-License-Identifier: Apache-2.0
"""The files of horovod-suite, and what its ranks have logged: a line as a test begins and ends."""

import collections
import json
from pathlib import Path

# File, its variables, and on how many ranks where that is not for the user to say.
FILES = {"test/parallel/test_torch.py": ({}, 0), "test/parallel/test_common.py": ({}, 0),
         "test/parallel/test_timeline.py": ({}, 0), "test/integration/test_stall.py": ({}, 0),
         "test/parallel/test_adasum_pytorch.py": ({"HOROVOD_CONTROLLER": "mpi"}, 0),
         **{f"test/parallel/test_{name}.py": ({}, 0) for name in (
           "tensorflow", "tensorflow_process_sets", "tensorflow_process_sets_dynamic",
           "process_sets_static", "tensorflow2_keras")},
         "test/parallel/test_adasum_tensorflow.py": ({"HOROVOD_CONTROLLER": "mpi"}, 0),
         **{f"test/integration/test_spark{which}.py": ({"HALAY_HOROVOD": "1"}, 1)
            for which in ("", "_torch", "_lightning")},  # they start ranks themselves
         **{f"test/{name}.py": ({}, 1) for name in ("integration/test_elastic_torch", *(
           f"single/test_{e}" for e in ("torch_elastic", "ray", "ray_elastic", "ray_elastic_v2")))},
         "test/integration/test_spark_keras.py": (
             {"HALAY_HOROVOD": "1", "TF_USE_LEGACY_KERAS": "1"}, 1),
         # Written for the older Keras; the other two of TensorFlow for TensorFlow 1.
         "test/integration/test_elastic_tensorflow2.py": ({"TF_USE_LEGACY_KERAS": "1"}, 1),
         "test/integration/test_elastic_tensorflow.py": ({}, 1),
         "test/integration/test_elastic_tensorflow_keras.py": ({}, 1),
         "test/parallel/test_mxnet1.py": ({}, 0)}


def verdicts(folder):
    """{test: (outcome, reason)}, in the order they ran: the worst of all ranks."""
    ranks = collections.defaultdict(dict)
    logs = sorted(Path(folder).glob("*.log"))
    for log in logs:
        for name, *new in map(json.loads, log.read_text().splitlines()):
            seen = ranks[name.split("::")[-1]]
            begun = seen.get(log, new)[0] == "lost"
            seen[log] = new if begun else max(seen[log], new, key=badness)
    lost = ["lost", "some ranks did not end it"]
    return {
        name: max([*seen.values(), *([lost] * (len(seen) < len(logs)))], key=badness)
        for name, seen in ranks.items()
    }


def badness(verdict):
    return ("passed", "skipped", "failed", "lost").index(verdict[0])


def take_until_bad(found, new):
    """Adds new verdicts to those found, up to the first that is bad; that test's name, or None."""
    for name, verdict in new.items():
        found[name] = verdict
        if badness(verdict) > 1:
            return name
    return None
