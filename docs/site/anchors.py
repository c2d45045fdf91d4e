# SPDX-License-Identifier: Apache-2.0
"""The anchors of headings, by which links name them: those of GitHub. A decision's is its number,
which stands before its heading for GitHub (<a id="0050"></a>).
"""

from __future__ import annotations

import re

from myst_parser.slugs import github_slugify


def slug(title: str) -> str:
    decision = re.match(r"(\d{4}): ", title)
    return decision[1] if decision else github_slugify(title)
