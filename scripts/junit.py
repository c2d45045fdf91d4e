# SPDX-License-Identifier: Apache-2.0
"""What stands in a JUnit file of ctest or pytest."""

import xml.etree.ElementTree as ET
from pathlib import Path


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    # ctest also says skipped of a test whose program is not there.
    wanted = case.get("status") != "notrun" or "SKIP" in skipped.get("message", "")
    return "skipped" if wanted else "failed"


def reason(cases):
    """Why a test was skipped."""
    output = (cases[0].findtext("system-out") or "").strip().splitlines()
    said = [line for line in output if "skip" in line.lower()]
    return said[0] if said else cases[0].find("skipped").get("message", "")


def name_of(case):
    """What the runner calls it: ctest's name, or pytest's path::Class::name."""
    if "status" in case.attrib:  # ctest's
        return case.get("name")
    parts = [part for part in case.get("classname", "").split(".") if part]
    if not parts:  # a module that cannot be imported
        return case.get("name").replace(".", "/") + ".py"
    for count in range(len(parts), 0, -1):
        path = "/".join(parts[:count]) + ".py"
        if Path(path).exists():
            return "::".join([path, *parts[count:], case.get("name")])
    return case.get("name")


def results(path):
    """{name: [cases]}: pytest has two of a test that failed and whose end failed, too."""
    found = {}
    for case in ET.parse(path).iter("testcase"):
        found.setdefault(name_of(case), []).append(case)
    return found


def worst(cases):
    outcomes = [outcome(case) for case in cases]
    return next(kind for kind in ("failed", "skipped", "passed") if kind in outcomes)


def output(cases):
    return "\n".join(text.rstrip() for case in cases for part in case if part.tag != "properties"
                     for text in (part.get("message"), part.text) if text and text.strip())
