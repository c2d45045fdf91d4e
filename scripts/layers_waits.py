# SPDX-License-Identifier: Apache-2.0
"""Part of check-layers: which files may wait in the kernel, by which call, and what ends each wait.
accept4 and connect are made on descriptors that do not block."""

import re
import subprocess

from layers_objects import objects_of

WAITS = {"poll", "ppoll", "epoll_wait", "epoll_pwait", "select", "pselect", "pthread_cond_wait",
         "pthread_cond_timedwait", "pthread_cond_clockwait", "pthread_barrier_wait",
         "sem_wait", "sem_timedwait", "sem_clockwait", "accept", "waitpid", "waitid", "wait",
         "wait4", "sigwait", "sigwaitinfo", "sigtimedwait", "pause", "pthread_join", "getaddrinfo",
         "flock", "lockf", "nanosleep", "clock_nanosleep", "usleep", "sleep",
         "recv", "recvfrom", "recvmsg", "recvmmsg", "mq_receive", "msgrcv",
         "syscall"}  # a futex is one
OBJECTS = {"src": ["halay_core"],
           "boot": ["halay_boot_tcp", "halay_boot_pmi", "halay_boot_meet", "halay_launch_meet",
                    "halay_launch_agent"],
           "tools/halayrun": ["halayrun"],
           "bindings": ["halay_mpi"],
           "pmix": ["halay_boot_pmix", "halay_launch_pmix"],
           "transports": ["halay_meet", *(f"halay_transport_{name}" for name in
                                          ("inproc", "shm", "tcp", "ucx", "verbs"))]}
LOOKUP = {"getaddrinfo", "pthread_cond_timedwait"}  # in a thread of its own; until a given time
ALLOWED = {
    "halay_core/run/waiting.c": {"ppoll"},  # a second; then deadlines are looked at
    "halay_core/run/returned.c": {"sem_wait",  # an idle thread; no call waits for it
                                  "pthread_join"},  # it is told to end, and does at once
    "halay_core/base/mutex.c": {"syscall"},  # futex: the mutex, held for one step; sleeps: given
    "halay_core/base/device.c": {"syscall"},  # no futex
    "halay_core/device/cuda/node.c": {"syscall"},  # no futex
    "halay_core/device/cuda/work.c": {"nanosleep"},  # until a given time
    "halay_core/device/cuda/gate.c": {"nanosleep"},  # so many tries
    "halay_core/device/cuda/cuda.c": {"nanosleep"},  # so many tries
    "halay_core/groups/nccl/device_comm.c": {"nanosleep"},  # a pause; callers look at the clock
    "halay_core/groups/shared_gpu/shared_gpu.c": {"nanosleep"},  # until a given time
    "halay_mpi/mpi/job.c": {"nanosleep"},  # 0.5 s, once: the rank whose error it is ends first
    "halay_mpi/mpitrampoline/job.c": {"nanosleep"},  # 5 ms, while calls run: their deadlines
    "halay_core/training/shell/trainer.c": {"pthread_cond_wait",  # for a thread in progress.c's
                                            "pthread_cond_timedwait", "usleep",  # 2 ms, 1 ms
                                            "pthread_join"},  # it ends after a step
    "halay_core/training/shell/timeline.c": {"pthread_cond_timedwait",  # 0.1 s
                                             "pthread_join",  # for writes to a file
                                             "syscall"},  # no futex
    "halay_boot_pmi/tcp/pmi.c": {"poll",  # until a given time; 1 s at the exit
                                 "recv"},  # MSG_DONTWAIT
    "halay_boot_tcp/tcp/gather.c": {"nanosleep"},  # until a given time
    "boot/common/find.c": {"nanosleep", "getaddrinfo"},  # to a given time; of an address
    "boot/common/reception.c": {"epoll_wait",  # 100 ms, or 0; its owner's deadline
                                "recv"},  # does not block
    "boot/common/visit.c": {"poll",  # until a given time
                            "recv"},  # does not block
    "boot/common/lookup.c": LOOKUP,
    "boot/common/claim.c": {"nanosleep"},  # 10 ms, once
    "boot/common/share.c": {"syscall"},  # no futex
    "common/thread.c": {"syscall"},  # no futex
    "halay_boot_meet/meet/boot_meet.c": {"nanosleep", "recv"},  # 20 ms; MSG_DONTWAIT
    "halay_launch_agent/meet/agent.c": {"recv"},  # MSG_DONTWAIT
    "halay_boot_pmix/call.c": {"poll"},  # until a given time
    "halay_boot_pmix/join.c": {"poll"},  # a second; the start deadline
    "halay_boot_pmix/member.c": {"nanosleep",  # until a given time
                                 "recvmsg"},  # does not block
    "halay_meet/common/guest.c": {"epoll_wait"},  # 0
    "halay_meet/common/link.c": {"recv"},  # does not block
    "halay_meet/common/proof.c": {"recv"},  # does not block
    "halay_transport_shm/shm/meet.c": {"recvmsg"},  # does not block
    "halay_transport_shm/shm/peer.c": {"syscall"},  # no futex
    "halay_transport_shm/shm/watch.c": {"epoll_wait"},  # 0
    "halay_transport_tcp/tcp/in.c": {"recv", "recvmsg"},  # do not block
    "halay_transport_tcp/tcp/tcp.c": {"epoll_wait"},  # 0
    "halay_transport_tcp/tcp/watch.c": {"epoll_wait"},  # 0
    "halay_transport_tcp/tcp/open.c": {"poll"},  # a close: a second in all
    "halay_transport_ucx/ucx/open.c": {"poll"},  # a close: a second in all
    "halay_transport_verbs/verbs/open.c": {"poll"},  # a close: a second in all
    "halay_transport_verbs/verbs/end.c": {"pthread_cond_timedwait"},  # a close: until a given time
    "halayrun/output.c": {"poll"},  # 0
    "halayrun/job.c": {"poll", "waitpid"},  # as long as its ranks live; they have ended
    "halayrun/ends.c": {"waitid", "nanosleep"},  # WNOHANG; a moment, once
    "halayrun/orphans.c": {"waitpid"},  # WNOHANG
    "halayrun/discovery.c": {"waitid", "waitpid"},  # WNOHANG; it has ended
    "halayrun/starters.c": {"waitid", "waitpid", "nanosleep"},  # WNOHANG; it has ended; at most 2 s
    "halayrun/guard.c": {"waitpid"},  # for a child that was killed
    "halayrun/guests.c": {"recv"},  # netlink: the kernel has answered already
    "halayrun/session.c": {"flock"},  # does not block
}


def check_waits(build):
    for folder, targets in OBJECTS.items():
        for target in targets:
            for path, name in objects_of(build, folder, target):
                lines = subprocess.run(["nm", "-u", path], capture_output=True, text=True,
                                       check=True).stdout
                name = f"{target}/{name[:-2]}"
                part = re.sub(r"^halay_(boot|launch)_\w+/(__/boot/)?common/", "boot/common/", name)
                used = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
                for call in sorted((used & WAITS) - ALLOWED.get(part, set())):
                    yield f"{name} waits by {call}(): scripts/layers_waits.py says which may"
