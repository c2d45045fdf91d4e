# SPDX-License-Identifier: Apache-2.0
"""horovod.data: loaders of batches, and one that reads ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

_LOOK_S = 0.1  # how soon a thread that cannot put anything sees that it is to end
_END_S = 30.0  # how long a batch may take that is being read while the loader is closed


class BaseDataLoader:
    """A subclass gives __len__() and _iterate(), the batches of one epoch."""

    def __len__(self) -> int:
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        """What is given out of it; for trainers that want another shape."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _EndOfEpoch:
    pass


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class AsyncDataLoaderMixin:
    """Goes before a BaseDataLoader among a class's bases: batches are read ahead by a thread.

    async_loader_queue_size: how many at most, into the next epoch, too; 0: no thread. What
    _iterate() raises is raised by the loop over the loader. close_async_loader() ends the thread,
    and the loader with it; a program may end without.
    """

    def __init__(
        self,
        async_loader_queue_size: int = 64,
        debug_data_loader: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)
        self.started = False
        if async_loader_queue_size > 0:
            self.finished_event = threading.Event()
            self.queue: queue.Queue[Any] = queue.Queue(async_loader_queue_size)
            self.thread = threading.Thread(target=self._async_worker, daemon=True)

    def _put(self, item: Any) -> bool:
        """False if the loader is closed."""
        while not self.finished_event.is_set():
            try:
                self.queue.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False

    def _async_worker(self) -> None:
        try:
            while not self.finished_event.is_set():
                for batch in self._iterate():  # type: ignore[attr-defined]
                    if not self._put(batch):
                        return
                if not self._put(_EndOfEpoch):
                    return
        except BaseException as error:
            self._put(_Failed(error))

    def _get(self) -> Any:
        """The next item; RuntimeError where none can come."""
        while True:
            try:
                return self.queue.get(timeout=_LOOK_S)
            except queue.Empty:
                if not self.thread.is_alive() and self.queue.empty():
                    raise RuntimeError(
                        "the loader's thread has ended, by close_async_loader() or an error that "
                        "was raised before: make a new loader"
                    ) from None

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            for batch in self._iterate():  # type: ignore[attr-defined]
                yield self._process_batch(batch)  # type: ignore[attr-defined]
            return
        if not self.started:
            self.started = True
            self.thread.start()
        while True:
            item = self._get()
            if item is _EndOfEpoch:
                return
            if isinstance(item, _Failed):
                raise item.error
            yield self._process_batch(item)  # type: ignore[attr-defined]

    def close_async_loader(self) -> None:
        """Ends the thread. RuntimeError if its batch takes longer than 30 s."""
        if self.async_loader_queue_size <= 0 or not self.started:
            return
        self.finished_event.set()
        self.thread.join(_END_S)
        if self.thread.is_alive():
            raise RuntimeError(f"the loader's thread still reads a batch after {_END_S:g} s")
        while not self.queue.empty():
            self.queue.get_nowait()
