# SPDX-License-Identifier: Apache-2.0
"""The Python reference: a page for each public module, of its docstrings. Nothing is imported:
griffe reads the source, so no framework need be there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import c_reference
import griffe

COMMON = "_surface"  # the names that each framework's module has
MODULES = (
    "torch",
    "torch.elastic",
    "tensorflow",
    "tensorflow.elastic",
    "keras",
    "keras.callbacks",
    "keras.elastic",
    "jax",
    "mxnet",
    "arrays",
    "mem",
    "distributed",
    "torchft",
    "ray",
    "spark",
    "spark.torch",
    "spark.lightning",
    "spark.keras",
    "spark.store",
    "timeline",
    "errors",
)


def prose(text: str) -> str:
    """A docstring as reStructuredText: single back quotes are code, stars are stars."""
    text = inspect.cleandoc(text)
    text = re.sub(r"(?<!`)`([^`\n]+)`(?!`)", r"``\1``", text)
    text = "".join(
        part if number % 2 else re.sub(r"([*|])", r"\\\1", re.sub(r"(\w)_(?=\W)", r"\1\\_", part))
        for number, part in enumerate(re.split(r"(``[^`]+``)", text))
    )
    return c_reference.linked(text)


def indented(text: str) -> str:
    return "\n".join("   " + line if line else "" for line in text.split("\n"))


def target(module: Any, name: str) -> Any:
    found = module.members.get(name)
    return found.final_target if found is not None and found.is_alias else found


def signature(parameters: Any, skipped: int = 0) -> str:
    out, starred = [], False
    for parameter in list(parameters)[skipped:]:
        kind = parameter.kind.value
        mark = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        if kind == "keyword-only" and not starred:
            out.append("*")
        starred = starred or kind in ("keyword-only", "variadic positional")
        text = mark + parameter.name
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not mark:
            text += (" = " if parameter.annotation is not None else "=") + str(parameter.default)
        out.append(text)
    return ", ".join(out)


def about(it: Any, call: Any) -> str:
    """A docstring, in which the text of a parameter ("name: ...") begins with it as code."""
    text = prose(it.docstring.value) if it.docstring else ""
    if call is None or not [*call.parameters]:
        return text
    name = "|".join(re.escape(parameter.name) for parameter in call.parameters)

    def coded(found: re.Match[str]) -> str:
        return ", ".join(f"``{name}``" for name in found[1].split(", ")) + ": "

    return re.sub(rf"(?<![\w`.])((?:{name})(?:, (?:{name}))*): ", coded, text)


def function(path: str, it: Any, kind: str) -> str:
    skipped = int(kind == "method" and "staticmethod" not in it.labels)
    returns = f" -> {it.returns}" if it.returns is not None else ""
    head = f".. py:{kind}:: {path}({signature(it.parameters, skipped)}){returns}\n"
    return head + "\n" + indented(about(it, it)) + "\n\n"


def described_class(path: str, it: Any) -> str:
    bases = ", ".join(str(base) for base in it.bases)
    init = it.members.get("__init__")
    call = f"({signature(init.parameters, 1)})" if init is not None and init.is_function else ""
    text = [f".. py:class:: {path}{call}\n"]
    body = (f"Bases: ``{bases}``\n\n" if bases else "") + about(it, init if call else None)
    for name, member in it.members.items():
        if name.startswith("_") or member.is_alias or not member.docstring:
            continue
        if member.is_function:
            body += "\n\n" + function(name, member, "method")
        elif "property" in member.labels:
            body += f"\n\n.. py:property:: {name}\n\n{indented(prose(member.docstring.value))}\n"
    return "\n".join([*text, indented(body), "\n"])


def described(module: Any, shown: str, names: list[str]) -> Iterator[str]:
    yield f".. py:currentmodule:: {shown}\n\n"
    for name in names:
        it = target(module, name)
        if it is None or it.is_module:
            continue
        if it.is_function:
            yield function(name, it, "function")
        elif it.is_class:
            yield described_class(name, it)
        else:
            value = str(it.value) if it.value is not None and len(str(it.value)) < 60 else ""
            more = f"   :value: {value}\n" if value else ""
            text = indented(prose(it.docstring.value)) if it.docstring else ""
            yield f".. py:data:: {name}\n{more}\n{text}\n\n"


def names_of(module: Any) -> list[str]:
    """Those of __all__; of a module without, the public ones that it defines and describes."""
    if module.exports is not None:
        return [name if isinstance(name, str) else name.name for name in module.exports]
    return [
        name
        for name, it in module.members.items()
        if not (name.startswith("_") or it.is_alias or it.is_module)
        and (it.is_function or it.is_class)
        and it.docstring
    ]


def write(package: Path, folder: Path) -> list[str]:
    """A page for each module into folder. Returns their names, in the order of the contents."""
    halay = griffe.load("halay", search_paths=[package], resolve_aliases=True)
    common = names_of(halay[COMMON])
    intro = (
        "These names are in the module of each framework: ``halay.torch``, ``halay.tensorflow``, "
        "``halay.keras``, ``halay.jax``, ``halay.mxnet``. Their errors stand in "
        ":doc:`halay.errors`.\n\n"
    )
    errors = set(names_of(halay["errors"]))
    shared = [name for name in common if name not in errors]
    title = "hvd: names of every framework"
    pages = {"common": (title, intro + "".join(described(halay[COMMON], "hvd", shared)))}
    for name in MODULES:
        module = halay[name]
        own = [n for n in names_of(module) if n not in common or name == "errors"]
        text = prose(module.docstring.value) + "\n\n" if module.docstring else ""
        if set(common) < set(names_of(module)):
            text += "It also has :doc:`the names of every framework <common>`.\n\n"
        text += "".join(described(module, f"halay.{name}", own))
        pages[f"halay.{name}"] = f"halay.{name}", text
    for name, (title, text) in pages.items():
        (folder / f"{name}.rst").write_text(f"{title}\n{'=' * len(title)}\n\n{text}")
    return list(pages)
