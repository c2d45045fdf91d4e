# SPDX-License-Identifier: Apache-2.0
"""What all Estimators share."""

__all__: list[str] = []
