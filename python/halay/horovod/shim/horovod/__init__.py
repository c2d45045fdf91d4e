# SPDX-License-Identifier: Apache-2.0
"""Halay under Horovod's name (see halay.horovod)."""

from halay.horovod import RELEASE, absent, identity

from .runner import run

__version__ = RELEASE

__all__ = ["__version__", "run"]

absent.install()
identity.export(identity.guess())
