# SPDX-License-Identifier: Apache-2.0
"""Stands in for what Horovod's tests import of Horovod's own insides, and Halay does not have.

A file of tests can be imported then; a test that calls or replaces such a thing is skipped, and
says which one. What Halay has is never replaced.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import pytest

from halay.horovod import absent


class Absent:
    """Something in an absent module."""

    def __init__(self, name):
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def _skip(self, *_, **__):
        pytest.skip(f"Horovod's own: {self._name}")

    def __delattr__(self, name):
        """What mock does behind a __setattr__ that has skipped the test."""

    __call__ = __setattr__ = __enter__ = __iter__ = __add__ = _skip


class AbsentModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __setattr__(self, name, value):
        if not name.startswith("__") and not isinstance(value, types.ModuleType):
            pytest.skip(f"Horovod's own: {self.__name__}.{name}")
        super().__setattr__(name, value)

    def __delattr__(self, name):
        """As above."""


class Beside(importlib.abc.MetaPathFinder):
    """The first one that is asked: a module of Halay's, and what it does not have absent.

    For Spark's only: elsewhere tests ask what a module has.
    """

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("horovod.spark."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                module.__getattr__ = AbsentModule.__getattr__.__get__(module)

            spec.loader.exec_module = exec_module
        return spec


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last one that is asked."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("horovod."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return AbsentModule(spec.name)

    def exec_module(self, module):
        pass


def install():
    absent.ABSENT.clear()  # whose import is refused elsewhere
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Beside())
        sys.meta_path.append(Finder())
