# SPDX-License-Identifier: Apache-2.0
"""What both kinds of DistributedOptimizer share: how they are made of an optimizer, and copied."""

from __future__ import annotations

from typing import Any

import torch

_MADE_WITH = "halay"  # in what a copy or a pickle is made of


class Front(torch.optim.Optimizer):
    """Stands before the user's class.

    A copy or a pickle of it is what torch makes of the user's optimizer, and reduces the gradients
    of the parameters in it by the same names: those of a copied model, if both are copied at once.
    """

    def _made_with(self) -> tuple[Any, ...]:
        """For _make_again() of a copy."""
        raise NotImplementedError

    def _make_again(self, *made_with: Any) -> None:
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        front, base = type(self).__bases__
        state = {**self.__getstate__(), _MADE_WITH: self._made_with()}
        return _blank, (front, base), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if _MADE_WITH not in state:  # load_state_dict()
            super().__setstate__(state)
            return
        plain: Any = object.__new__(type(self).__bases__[1])
        plain.__setstate__({k: v for k, v in state.items() if k != _MADE_WITH})
        self.__dict__.update(plain.__dict__)
        self._make_again(*state[_MADE_WITH])


def _blank(front: type, base: type) -> Any:
    """An object of a class that has front before its own."""
    return object.__new__(type(base.__name__, (front, base), {}))


def made_of(optimizer: torch.optim.Optimizer, front: type) -> Any:
    """The optimizer, of a class that has front before its own."""
    made = _blank(front, type(optimizer))
    # Not an attribute `step` that a learning rate scheduler put over the method: it would run
    # the user's step() and never ours.
    made.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    return made
