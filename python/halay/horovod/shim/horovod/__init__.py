# SPDX-License-Identifier: Apache-2.0
"""Halay under Horovod's name (see halay.horovod)."""

from halay.horovod import absent, identity

from .runner import run

# Of the release whose interface this is; Halay's own is halay.__version__.
__version__ = "0.28.1"

__all__ = ["__version__", "run"]

absent.install()
identity.export(identity.guess())
