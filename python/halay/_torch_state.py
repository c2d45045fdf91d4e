# SPDX-License-Identifier: Apache-2.0
"""The state of an optimizer, packed and put back as it is: types, strides, nesting, what is shared.

torch's load_state_dict() casts state to the type of its parameter: copies in float32, tables in
uint8 and numbers in lists are lost. So state is pickled from the optimizer and set directly. The
memory of tensors goes beside the pickle, as in torch.save(): tensors that share memory share it
again. A parameter that state refers to is the other optimizer's own parameter after that.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

import torch

from ._pickles import Pickler

_Storage = (torch.storage.TypedStorage, torch.UntypedStorage)
# Since torch 2.0 others that make a TypedStorage are warned.
_INTERNAL = {"_internal": True} if hasattr(torch.Tensor, "untyped_storage") else {}


def held_by(optimizer: Any, path: str = "optimizer") -> Iterator[tuple[str, Any]]:
    """The optimizer, and those that it steps: wrappers keep them in an attribute or in a list."""
    yield path, optimizer
    for name, value in vars(optimizer).items():
        for index, one in enumerate(value if isinstance(value, (list, tuple)) else [value]):
            if isinstance(one, torch.optim.Optimizer):
                yield from held_by(one, f"{path}.{name}.{index}")


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    found = [
        parameter
        for _, one in held_by(optimizer)
        for group in one.param_groups
        for parameter in group["params"]
    ]
    return list({id(parameter): parameter for parameter in found}.values())


def _counts(optimizer: Any) -> list[tuple[str, list[int]]]:
    """How many parameters are in each group."""
    return [(p, [len(g["params"]) for g in one.param_groups]) for p, one in held_by(optimizer)]


def _untyped(storage: Any) -> Any:
    if isinstance(storage, torch.UntypedStorage):
        return storage
    found = getattr(storage, "_untyped_storage", None)
    return storage.untyped() if found is None else found  # torch 1.13


def _memory(tensor: torch.Tensor) -> int | None:
    """What two tensors have in common that lie in one storage. None: a subclass has none."""
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else None
        return None if storage is None or storage.nbytes() == 0 else int(storage._cdata)
    except (NotImplementedError, RuntimeError):
        return None


@dataclass
class Packed:
    """blocks: the bytes of each storage. kinds: the kind of device each is for."""

    counts: list[tuple[str, list[int]]]
    devices: list[str]  # the kinds that parameters are on
    direct: bytes
    own: bytes
    kinds: list[str]
    blocks: list[torch.Tensor]

    def head(self) -> tuple[Packed, list[int]]:
        """All but the blocks, and how many bytes each of those has."""
        return replace(self, blocks=[]), [len(block) for block in self.blocks]

    def copied(self) -> Packed:
        """Of which the optimizer that was packed, or that it is put into, changes nothing."""
        return replace(self, blocks=[block.clone() for block in self.blocks])


class _Packing:
    """Pickles with one list of blocks."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.parameters = {id(parameter): i for i, parameter in enumerate(parameters)}
        self.memory = {_memory(parameter): i for i, parameter in enumerate(parameters)}
        self.memory.pop(None, None)
        self.blocks: list[torch.Tensor] = []
        self.numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # a number is a storage's as long as it lives

    def number(self, storage: Any) -> int:
        key = int(storage._cdata)
        if key not in self.numbers:
            self.numbers[key] = len(self.blocks)
            self._kept.append(storage)
            block = torch.empty(0, dtype=torch.uint8, device=storage.device)
            self.blocks.append(block.set_(storage, 0, (storage.nbytes(),), (1,)))
        return self.numbers[key]

    def dumps(self, value: Any, by_value: bool) -> bytes:
        file = io.BytesIO()
        _Packer(file, self, by_value).dump(value)
        return file.getvalue()


class _Packer(Pickler):  # type: ignore[misc]
    def __init__(self, file: IO[bytes], of: _Packing, by_value: bool) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._of, self._by_value = of, by_value

    def persistent_id(self, obj: Any) -> Any:
        of = self._of
        if isinstance(obj, torch.Tensor):
            found = None if self._by_value else of.parameters.get(id(obj))
            return None if found is None else ("parameter", found)
        if isinstance(obj, torch.device):
            return "device", obj.type
        if not isinstance(obj, _Storage):
            return None
        storage = _untyped(obj)
        # torch asks for a typed one again for an untyped one, as torch.load() makes it.
        dtype = torch.uint8 if isinstance(obj, torch.UntypedStorage) else obj.dtype
        if not self._by_value and int(storage._cdata) in of.memory:
            return "memory", of.memory[int(storage._cdata)], dtype
        return "block", of.number(storage), dtype


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, packed: Packed, parameters: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(data))
        self._packed, self._parameters = packed, parameters
        self._placed: dict[int, Any] = {}

    def _device(self, kind: str) -> torch.device:
        """This process's own of the kind."""
        own = [parameter.device for parameter in self._parameters if parameter.device.type == kind]
        return own[0] if own else torch.device(kind)

    def _storage(self, index: int) -> Any:
        if index not in self._placed:
            block = self._packed.blocks[index].to(self._device(self._packed.kinds[index]))
            self._placed[index] = block.untyped_storage()
        return self._placed[index]

    def persistent_load(self, pid: Any) -> Any:
        what, value = pid[:2]
        if what == "parameter":
            return self._parameters[value]
        if what == "device":
            return self._device(value)
        storage = (
            self._storage(value) if what == "block" else self._parameters[value].untyped_storage()
        )
        typed: Any = torch.storage.TypedStorage
        return typed(wrap_storage=storage, dtype=pid[2], **_INTERNAL)


def _has_own_form(optimizer: Any) -> bool:
    """Or keeps more than its state, such as what it computes from it, and renews that when it loads
    one."""
    classes = [one for one in type(optimizer).__mro__ if one is not torch.optim.Optimizer]
    own = [vars(one).get(name) for one in classes for name in ("state_dict", "load_state_dict")]
    modules = [getattr(one, "__module__", None) or "" for one in own if one]
    return any(not module.startswith("halay.") for module in modules)


def _keeps_state(optimizer: Any) -> bool:
    """Whether state and groups are its own attributes, as torch's base class has them."""
    own = vars(optimizer)
    return isinstance(own.get("state"), dict) and isinstance(own.get("param_groups"), list)


def _direct(optimizer: Any) -> Any:
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return groups, dict(optimizer.state)


def pack(optimizer: Any) -> Packed:
    """Its blocks are the memory of the state itself."""
    parameters = _parameters(optimizer)
    packing, parts = _Packing(parameters), list(held_by(optimizer))
    direct = {path: _direct(one) for path, one in parts if _keeps_state(one)}
    own = optimizer.state_dict() if _has_own_form(optimizer) else None
    with torch.no_grad():
        pickles = packing.dumps(direct, False), packing.dumps(own, True)
    return Packed(
        _counts(optimizer),
        sorted({parameter.device.type for parameter in parameters}),
        *pickles,
        [block.device.type for block in packing.blocks],
        packing.blocks,
    )


def put(packed: Packed, optimizer: Any) -> None:
    """Gives the optimizer what was packed; its blocks are the memory of the state after that."""
    here = _counts(optimizer)
    if here != packed.counts:
        raise ValueError(
            f"the state is of an optimizer with other parameter groups: {packed.counts} "
            f"parameters there, {here} here"
        )
    parameters = _parameters(optimizer)
    own = _Unpacker(packed.own, packed, parameters).load()
    direct = _Unpacker(packed.direct, packed, parameters).load()
    if own is not None:
        optimizer.load_state_dict(own)
    for path, one in held_by(optimizer):
        if path in direct:
            set_state(one, *direct[path])
    if packed.devices != sorted({parameter.device.type for parameter in parameters}):
        follow_parameters(optimizer)


def set_state(optimizer: Any, groups: list[dict[str, Any]], state: dict[Any, Any]) -> None:
    """In place: whoever shares the dicts goes on sharing them."""
    optimizer.state.clear()
    optimizer.state.update(state)
    for group, sent in zip(optimizer.param_groups, groups):
        members = group["params"]
        group.clear()
        group["params"] = members
        group.update((key, value) for key, value in sent.items() if key != "params")


def load(optimizer: Any, saved: dict[str, Any]) -> None:
    """optimizer.load_state_dict(saved), with the state as it is in saved."""
    optimizer.load_state_dict(saved)
    if not _keeps_state(optimizer) or not {"state", "param_groups"} <= saved.keys():
        return
    saved = copy.deepcopy(saved)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    known = dict(zip(numbers, own))
    state = {known.get(key, key): value for key, value in saved["state"].items()}
    set_state(optimizer, saved["param_groups"], state)
    # What an older release of torch has not saved gets its default, as by load_state_dict().
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})
    follow_parameters(optimizer)


def follow_parameters(optimizer: Any) -> None:
    """Moves state to where its parameter is, as load_state_dict() does, and casts nothing.

    Single numbers stay, such as the count of steps, unless the step is a kernel of the device.
    """
    for group in optimizer.param_groups:
        on_device = group.get("capturable", False) or group.get("fused", False)
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if state is not None:
                optimizer.state[parameter] = _moved(state, parameter.device, on_device)


def _moved(value: Any, device: torch.device, numbers: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device) if numbers or value.dim() > 0 else value
    if isinstance(value, dict):
        for key in value:
            value[key] = _moved(value[key], device, numbers)
    elif type(value) in (list, tuple):
        return type(value)(_moved(one, device, numbers) for one in value)
    return value
