# SPDX-License-Identifier: Apache-2.0
"""horovodrun's --config-file: options in YAML, by Horovod's names.

A key that is not known, and a value that makes no sense, are refused: a setting that is misspelt
would have no effect, and nobody would know.
"""

from __future__ import annotations

import difflib
import reprlib
from typing import Any, Callable, NamedTuple

from .flags import FLAGS, Flag


class _Key(NamedTuple):
    """Which option it is, and whether it says the opposite."""

    dest: str
    inverse: bool = False


def _section(prefix: str, *names: str) -> dict[str, _Key]:
    return {name: _Key(prefix + name) for name in names}


SECTIONS: dict[str, dict[str, _Key]] = {
    "params": _section(
        "",
        "fusion_threshold_mb",
        "cycle_time_ms",
        "cache_capacity",
        "hierarchical_allreduce",
        "hierarchical_allgather",
        "torus_allreduce",
    ),
    "autotune": {
        "enabled": _Key("autotune"),
        **_section(
            "autotune_",
            "log_file",
            "warmup_samples",
            "steps_per_sample",
            "bayes_opt_max_samples",
            "gaussian_process_noise",
        ),
    },
    "timeline": _section("timeline_", "filename", "mark_cycles"),
    "stall_check": {
        "enabled": _Key("no_stall_check", inverse=True),
        **_section("stall_check_", "warning_time_seconds", "shutdown_time_seconds"),
    },
    "library_options": _section(
        "", "mpi_threads_disable", "num_nccl_streams", "thread_affinity", "gloo_timeout_seconds"
    ),
    "logging": {
        "level": _Key("log_level"),
        "with_timestamp": _Key("log_with_timestamp"),
        "hide_timestamp": _Key("log_with_timestamp", inverse=True),
    },
}
_CONTROLLERS = ("gloo", "mpi")


def _load(path: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise ValueError(
            f"--config-file {path} needs PyYAML, which is not installed: pip install pyyaml, or "
            "give its settings as options"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc,unused-ignore]
        """YAML has each key once; PyYAML would take the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            seen: set[str] = set()
            for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        with open(path, encoding="utf-8-sig") as file:
            return yaml.load(file, Loader)
    except OSError as error:
        raise ValueError(f"--config-file {path}: {error.strerror}") from None
    except RecursionError:
        raise ValueError(f"{path}: this is nested too deeply for settings") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        why = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ValueError(f"{where}: this is no YAML: {why}") from None


def _unknown(path: str, key: Any, known: list[str], within: str) -> ValueError:
    near = difflib.get_close_matches(str(key), known, 1)
    remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return ValueError(f"{path}: {within}{key} is no setting of horovodrun: {remedy}")


def _value(flag: Flag, value: Any, where: str) -> Any:
    """As the option would take it."""
    if flag.take is None:
        if not isinstance(value, bool):
            raise ValueError(f"{where} must be true or false, not {reprlib.repr(value)}")
        return value
    if isinstance(value, (bool, dict, list)):
        raise ValueError(f"{where} must be one number or text, not {reprlib.repr(value)}")
    try:
        return flag.take(str(value))
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None


def _flag(dest: str) -> Flag:
    return next(flag for flag in FLAGS if flag.dest == dest)


def _controller(path: str, value: Any) -> dict[str, Any]:
    name = str(value).lower()
    if name not in _CONTROLLERS:
        raise ValueError(f"{path}: controller must be gloo or mpi, not {reprlib.repr(value)}")
    return {f"use_{name}": True}


def _of_section(path: str, name: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError(f"{path}: {name} must have keys of its own, not {reprlib.repr(given)}")
    found: dict[str, Any] = {}
    keys = SECTIONS[name]
    for key, value in given.items():
        if key not in keys:
            raise _unknown(path, key, list(keys), f"{name}.")
        if value is None:
            continue
        made = _value(_flag(keys[key].dest), value, f"{path}: {name}.{key}")
        found[keys[key].dest] = not made if keys[key].inverse else made
    return found


def read(path: str, load: Callable[[str], Any] = _load) -> dict[str, Any]:
    """What the file says, by option. ValueError: it cannot be read, or says what makes no sense."""
    document = load(path)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError(f"{path}: there are no settings in it, but {type(document).__name__}")
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key == "controller":
            found.update(_controller(path, value))
        elif key in SECTIONS:
            found.update(_of_section(path, key, value))
        else:
            raise _unknown(path, key, ["controller", *SECTIONS], "")
    return found
