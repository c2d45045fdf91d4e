# SPDX-License-Identifier: Apache-2.0
"""Part of check-layers: which files may wait in the kernel, by which call, and what ends each wait.
recv, accept and connect are made on descriptors that do not block."""

import subprocess

WAITS = {"poll", "ppoll", "epoll_wait", "epoll_pwait", "select", "pselect", "pthread_cond_wait",
         "sem_wait", "sem_timedwait", "accept", "waitpid", "waitid", "wait", "wait4", "sigwait",
         "sigwaitinfo", "pause"}
OBJECTS = {"src": ["halay_core"], "boot": ["halay_boot_tcp"], "tools/halayrun": ["halayrun"],
           "pmix": ["halay_boot_pmix", "halay_launch_pmix"],
           "transports": ["halay_meet", *(f"halay_transport_{name}" for name in
                                          ("inproc", "shm", "tcp", "ucx", "verbs"))]}
ALLOWED = {
    "halay_core/api/progress.c": {"ppoll"},  # a second; then deadlines are looked at
    "halay_core/api/returned.c": {"sem_wait"},  # an idle thread; no call waits for it
    "halay_core/training/trainer.c": {"pthread_cond_wait"},  # for a thread in progress.c's
    "halay_boot_tcp/tcp/host.c": {"epoll_wait"},  # 100 ms; the start deadline
    "halay_boot_tcp/tcp/guest.c": {"poll"},  # until a given time
    "halay_boot_pmix/call.c": {"poll"},  # until a given time
    "halay_boot_pmix/join.c": {"poll"},  # a second; the start deadline
    "halay_boot_pmix/node.c": {"epoll_wait"},  # a second; half of the start deadline
    "halay_boot_pmix/member.c": {"poll"},  # until a given time
    "halay_meet/common/guest.c": {"epoll_wait"},  # 0
    "halay_transport_shm/shm/watch.c": {"epoll_wait"},  # 0
    "halay_transport_tcp/tcp/tcp.c": {"epoll_wait"},  # 0
    "halay_transport_tcp/tcp/watch.c": {"epoll_wait"},  # 0
    "halay_transport_tcp/tcp/open.c": {"poll"},  # a close: a second in all
    "halay_transport_ucx/ucx/open.c": {"poll"},  # a close: a second in all
    "halay_transport_verbs/verbs/open.c": {"poll"},  # a close: a second in all
    "halayrun/output.c": {"poll"},  # 0
    "halayrun/job.c": {"poll", "waitid", "waitpid"},  # as long as its ranks live; they have ended
    "halayrun/guard.c": {"waitpid"},  # for a child that was killed
}


def check_waits(build):
    for folder, targets in OBJECTS.items():
        for target in targets:
            top = build / folder / f"CMakeFiles/{target}.dir"
            for path in sorted(top.rglob("*.o")):
                lines = subprocess.run(["nm", "-u", path], capture_output=True, text=True,
                                       check=True).stdout
                name = f"{target}/{path.relative_to(top).as_posix()[:-2]}"
                used = {line.split()[-1].split("@")[0] for line in lines.splitlines()}
                for call in sorted((used & WAITS) - ALLOWED.get(name, set())):
                    yield f"{name} waits by {call}(): scripts/layers_waits.py says which may"
