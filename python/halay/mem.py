# SPDX-License-Identifier: Apache-2.0
"""Registered memory: what large messages are sent from and received into without a copy.

A network adapter that writes straight into another process's memory has to be told of it first.
Halay does so for each large message, unless the whole buffer lies in memory that is registered::

    with halay.mem.allocate(4 * count) as memory:
        gradients = torch.frombuffer(memory.view, dtype=torch.float32)
        ...
    with halay.mem.register(tensor):
        ...

Between init() and shutdown(), which ends what is left. Where nothing has to be registered (shared
memory, TCP, one rank) it costs nothing and changes nothing. Local: ranks need not do the same.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ._core import address_of, ffi, lib
from ._session import Session, current, session

__all__ = ["Memory", "Registration", "allocate", "register"]


class _Entry:
    """What is taken back once: by close(), at the end of a `with`, or by shutdown()."""

    def __init__(self, of: Session, address: int, nbytes: int) -> None:
        self._session: Session | None = of
        self.address = address
        self.nbytes = nbytes

    def _take_back(self, of: Session) -> None:
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        """Whether it has been taken back."""
        return self._session is None or self._session is not current()

    def close(self) -> None:
        """Takes it back. Does nothing if that was done before.

        HalayError, code HALAY_ESTATE: an operation that is under way uses it. It stays as it was.
        """
        if not self.closed:
            self._take_back(session())
        self._session = None

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Registration(_Entry):
    """Memory of the program's, by register()."""

    def __init__(self, of: Session, keeper: Any, address: int, nbytes: int) -> None:
        super().__init__(of, address, nbytes)
        found = ffi.new("halay_range_t *")
        pointer = ffi.cast("void *", address)
        of.allowed(lib.halay_mem_register(of.context, pointer, nbytes, found))
        self._range = int(found[0])
        of.registered[self._range] = keeper

    def _take_back(self, of: Session) -> None:
        of.allowed(lib.halay_mem_deregister(of.context, self._range))
        del of.registered[self._range]


class Memory(_Entry):
    """Memory of Halay's, by allocate(): whole pages, zeroed.

    view: its bytes, for torch.frombuffer() or numpy.frombuffer(). Nothing made of it may be used
    once it is closed, nor after shutdown(), nor in a forked child: the memory is not there, and the
    process would end.
    """

    def __init__(self, of: Session, nbytes: int) -> None:
        found = ffi.new("void **")
        of.allowed(lib.halay_mem_alloc(of.context, nbytes, found))
        self._pointer = found[0]
        super().__init__(of, int(ffi.cast("uintptr_t", self._pointer)), nbytes)
        self.view = memoryview(ffi.buffer(self._pointer, nbytes)).cast("B")

    def _take_back(self, of: Session) -> None:
        of.allowed(lib.halay_mem_free(of.context, self._pointer))
        self.view.release()


def _place(buffer: Any) -> tuple[Any, int, int]:
    """What keeps a buffer where it is, where its bytes are, and how many."""
    if hasattr(buffer, "data_ptr"):
        if buffer.device.type != "cpu" or not buffer.is_contiguous():
            raise ValueError("register() takes tensors that are contiguous, in the host's memory")
        return buffer, int(buffer.data_ptr()), buffer.numel() * buffer.element_size()
    if hasattr(buffer, "__cuda_array_interface__"):
        raise ValueError(
            "register() takes memory of the host; a GPU's is registered when a message needs it "
            "(HALAY_GPUDIRECT)"
        )
    view = memoryview(buffer)
    if view.readonly or not view.c_contiguous:
        raise ValueError("register() takes buffers that are contiguous and can be written to")
    return view, address_of(view), view.nbytes


def register(buffer: Any) -> Registration:
    """Registers the memory of a tensor, an array, or whatever else has a writable buffer.

    It is kept alive until the registration is closed. Do not resize a tensor until then; what else
    can be resized refuses it.
    Where the adapter cannot (a limit on locked memory), Halay says so once, on standard error, and
    the memory is used as any other.
    """
    keeper, address, nbytes = _place(buffer)
    return Registration(session(), keeper, address, nbytes)


def allocate(nbytes: int) -> Memory:
    """Memory that is registered, in huge pages where the kernel gives them."""
    if nbytes < 1:
        raise ValueError(f"allocate() takes a number of bytes, not {nbytes}")
    return Memory(session(), nbytes)
