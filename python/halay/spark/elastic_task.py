# SPDX-License-Identifier: Apache-2.0
"""What a Spark task of run_elastic() does: it calls the driver, and has an agent whose process is a
rank. What the process and the agent say and write goes to the driver.

Invariant: the agent is there only as long as the task and its line to the driver are.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pickle
import select
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._agents import MET, Agent, Contact, Ended, Orders, Said
from . import task
from .line import Line

TICK_S = 0.1  # so late the agent's output may be


class Work(NamedTuple):
    """The driver's answer, without the job's secret. address: of the head. forward: the streams
    that the driver wants."""

    address: str
    orders: Orders
    variables: Mapping[str, str]
    executable: str | None
    forward: tuple[str, ...]
    timestamp: bool


class _Output:
    """One of the agent's streams."""

    def __init__(self, name: str, work: Work, line: Line) -> None:
        self.lines = task.Lines(name, -1, work.timestamp)
        self._line = line if name in work.forward else None
        self._own = 1 if name == "stdout" else 2
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)

    def read(self) -> bytes:
        """What is there now."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._read, task.CHUNK_BYTES)
        return b""

    def tell(self, data: bytes, last: bool = False) -> None:
        text = self.lines.take(data, last)
        if text and self._line is not None:
            self._line.send(task.Output(self.lines.name, text))
        elif text:
            os.write(self._own, text)

    def finish(self) -> None:
        """The agent has ended. Others may hold the stream, and write on."""
        for _ in range(task.DRAIN_CHUNKS):
            self.tell(self.read())
        self.tell(b"", last=True)

    def close(self) -> None:
        os.close(self._read)


def _pass_on(agent: Agent, line: Line, outputs: list[_Output]) -> None:
    """Until the agent has ended, or the driver hangs up."""
    hung_up = select.poll()
    hung_up.register(line.sock, select.POLLIN)
    one: Said | Ended | None = None
    while not isinstance(one, Ended):
        written = [output.read() for output in outputs]
        one = one or agent.next(0)
        while isinstance(one, Said):  # before what was written later: whose it is
            if one.kind == MET:
                for output in outputs:
                    output.lines.rank = one.rank
            line.send(one)
            one = agent.next(0)
        for output, data in zip(outputs, written):
            output.tell(data)
        if hung_up.poll(0):
            return
        if one is None and not any(written):
            one = agent.next(TICK_S)
    for output in outputs:
        output.finish()
    line.send(one)


class _Call:
    """What a rank's process calls: the function, once get_available_devices() knows of its task."""

    def __init__(self, function: bytes, gpus: list[Any]) -> None:
        self._function, self._gpus = function, [str(gpu) for gpu in gpus]

    def __call__(self) -> Any:
        from .. import spark

        spark.task_gpus[:] = self._gpus
        return pickle.loads(self._function)()


def _gpus(own: list[Any]) -> tuple[str, ...]:
    """The task's, then the others of the node."""
    named = [str(gpu) for gpu in own]
    if not all(gpu.isdigit() for gpu in named):
        return tuple(named)
    others = [path[len("/dev/nvidia") :] for path in sorted(glob.glob("/dev/nvidia[0-9]*"))]
    return (*named, *(gpu for gpu in others if gpu not in named)) if named else ()


def _serve(work: Work, contact: task.Contact, gpus: list[Any], line: Line) -> None:
    with contextlib.ExitStack() as stack:
        outputs = [_Output(name, work, line) for name in ("stdout", "stderr")]
        for output in outputs:
            stack.callback(output.close)
        call = pickle.dumps(_Call(work.orders.function, gpus))
        try:
            agent = Agent(
                Contact(work.address, contact.secret()),
                work.orders._replace(function=call, gpus=_gpus(gpus)),
                variables=work.variables,
                python=work.executable,
                stdout=outputs[0].write,
                stderr=outputs[1].write,
            )
        except Exception as error:
            line.send(task.End(None, b"", f"no agent can be started there: {error}"))
            return
        finally:
            for output in outputs:
                os.close(output.write)
        _pass_on(stack.enter_context(agent), line, outputs)


def attend(contact: task.Contact, place: int, _: Iterable[Any]) -> Iterable[Any]:
    """One task, from beginning to end."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    line = contact.call()
    try:
        where = task.where_is(context)
        line.send(task.Hello(str(context.taskAttemptId()), place, where, ""))
        with contextlib.suppress(OSError, EOFError):  # the driver hangs up when the run is over
            work = line.receive()
            if work is not None:
                _serve(work, contact, where.gpus, line)
    finally:
        line.close()
    return []
