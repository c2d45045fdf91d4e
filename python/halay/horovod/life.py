# SPDX-License-Identifier: Apache-2.0
"""init() as Horovod's programs call it, whatever their framework."""

from __future__ import annotations

import os
from typing import Any

from .. import _basics, _session
from . import identity, settings


@_session.at_open
def _export(session: _session.Session) -> None:
    """The ranks of an elastic job meet again without a call of init()."""
    identity.export({name: getattr(session, name.lower()) for name in identity.NAMES})


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job, under the HOROVOD_* settings as they are now."""
    fresh = not _basics.is_initialized()
    notes = settings.apply() if fresh else []
    if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        process_sets = None
    nothing = isinstance(comm, (list, tuple)) and not comm
    _basics.init(None if nothing else comm, process_sets or None)
    settings.report(notes)
