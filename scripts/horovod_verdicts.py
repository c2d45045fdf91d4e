# SPDX-License-Identifier: Apache-2.0
"""What the ranks of horovod-suite have logged: a line as each test begins, and as it ends."""

import collections
import json
from pathlib import Path


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
