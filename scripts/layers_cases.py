# SPDX-License-Identifier: Apache-2.0
"""The tree of check-layers --selftest, and the breaches of it."""

TREE = {
    "include/halay/halay.h": "#include <stddef.h>\n",
    **{f"include/halay/{name}.h": '#include "halay.h"\n' for name in ("plan", "transport")},
    "src/comm/comm.h": "#include <halay/transport.h>\n", "src/agree/agree.c": "\n",
    "src/exec/exec.h": '#include "comm/comm.h"\n',
    "src/exec/run.c": '#include "exec/exec.h"\n#include "plan/prove.h"\nint str; /* ring */\n',
    "src/exec/b.c": "", "src/plan/prove.h": "#include <halay/plan.h>\n",
    "src/plan/ring.c": '#include "prove.h"\n',
    "src/device/kernels.h": "#include <halay/halay.h>\n",
    "src/device/host.c": '#include "device/kernels.h"\n',
    "src/waits/text.h": "#include <stdint.h>\n",
    "src/waits/text.c": '#include "text.h"\n#include <string.h>\n',
    "src/training/core/core.h": '#include <halay/halay.h>\n#include "../../waits/text.h"\n',
    "src/training/core/join.c": '#include <stdlib.h>\n#include "core.h"\n',
    "src/training/shell/trainer.h": '#include "../core/core.h"\n',
    "src/training/shell/trainer.c": '#include <pthread.h>\n#include "trainer.h"\n',
    "transports/a/a.h": '#include "halay/transport.h"\n',
    "transports/a/a.c": '#include "a.h"\n#include "../common/meet.h"\n',
    "transports/common/meet.h": '#include "halay/transport.h"\n',
    "transports/b/b.h": "", "tools/t/t.h": "", "tools/common/size.h": "",
    "tools/t/t.c": '#include "t.h"\n#include "../common/size.h"\n#include <halay/plan.h>\n',
    "boot/common/claim.h": "#include <halay/halay.h>\n",
    "boot/common/world.c": '#include "../../src/waits/text.h"\n',
    "boot/a/a.c": '#include "../common/claim.h"\n#include "../../src/waits/text.h"\n',
    "pmix/boot.c": "#include <pmix.h>\n#include <halay/halay.h>\n"
    '#include "../boot/common/claim.h"\n',
    "examples/e.c": "#include <halay/halay.h>\n",
    "tests/unit/t.c": '#include "comm/comm.h"\n#include "../../transports/a/a.h"\n',
}
# Which file gets which line, and what has to be said of it.
BREACHES = [
    ("include/halay/halay.h", '#include "../../src/comm/comm.h"', "src/comm/comm.h"),
    ("src/comm/comm.h", '#include "training/core/core.h"', "src/training/core/core.h"),
    ("src/comm/comm.h", '#include "../transports/a/a.h"', "transports/a/a.h"),
    ("src/comm/comm.h", '#include "exec/exec.h"', "src/exec/exec.h"),
    ("src/comm/comm.h", "int hly_a(void);\n" * 41, "lines and 41 functions"),
    ("src/agree/agree.c", "#include <time.h>", "a pure part may include"),
    ("src/agree/agree.c", '#include "comm/comm.h"', "src/comm/comm.h"),
    ("src/exec/run.c", "#include <pmix.h>", "only pmix/ may"),
    ("src/exec/run.c", "int ring_next;", "names an algorithm: ring"),
    ("src/exec/run.c", "void circulant(void);", "names an algorithm: circulant"),
    ("src/plan/ring.c", '#include "comm/comm.h"', "src/comm/comm.h"),
    ("src/plan/ring.c", "#include <halay/transport.h>", "include/halay/transport.h"),
    ("src/device/host.c", '#include "comm/comm.h"', "src/comm/comm.h"),
    ("src/device/host.c", '#include "plan/prove.h"', "src/plan/prove.h"),
    ("src/training/shell/trainer.c", '#include "../../comm/comm.h"', "src/comm/comm.h"),
    ("src/training/shell/trainer.c", '#include "comm/comm.h"', "in no folder that it may look in"),
    ("src/training/shell/trainer.h", "int hlt_a(void);\n" * 41, "lines and 41 functions"),
    ("src/training/core/join.c", '#include "../shell/trainer.h"', "src/training/shell/trainer.h"),
    ("src/training/core/join.c", "#include <time.h>", "a pure part may include"),
    ("src/waits/text.c", "#include <time.h>", "a pure part may include"),
    ("src/waits/text.c", "#include <halay/halay.h>", "include/halay/halay.h"),
    ("src/waits/text.h", '#include "comm/comm.h"', "src/comm/comm.h"),
    ("transports/a/a.c", '#include "../../src/waits/text.h"', "src/waits/text.h"),
    ("transports/a/a.c", '#include "../b/b.h"', "transports/b/b.h"),
    ("transports/a/a.c", '#include "../../src/comm/comm.h"', "src/comm/comm.h"),
    ("tools/t/t.c", '#include "../../transports/common/meet.h"', "transports/common/meet.h"),
    ("tools/t/t.c", '#include "../../src/plan/prove.h"', "src/plan/prove.h"),
    ("tools/t/t.c", "#include <halay/none.h>", "in no folder that it may look in"),
    ("pmix/boot.c", '#include "../src/comm/comm.h"', "src/comm/comm.h"),
    ("boot/a/a.c", '#include "../../src/comm/comm.h"', "src/comm/comm.h"),
    ("boot/common/world.c", '#include "claim.h"', "boot/common/claim.h"),
    ("boot/common/world.c", "#include <stdlib.h>", "a pure part may include"),
    ("examples/e.c", '#include "../src/comm/comm.h"', "src/comm/comm.h"),
]
PLUGIN = "halay/halay-transport-a.so"
RIGHT = {"libhalay.so": "int halay_init;", PLUGIN: "int halay_transport_v7_a;"}
# What else a built library exports, and what has to be said of it.
LIBRARIES = [
    (PLUGIN, "int halay_transport_v7_a, hly_more;", "hly_more"),
    (PLUGIN, "static int nothing;", "exports []"),
    (PLUGIN, "int halay_transport_a;", "halay_transport_v<ABI>_a may be"),
    (PLUGIN, "int halay_transport_v7_a, halay_boot_v4_b;", "halay_boot_v4_b"),
    ("libhalay.so", "int halay_init, hly_exec_start;", "exports hly_exec_start"),
]
# Objects of the core that are right, and others in their place.
TYPES = "int halay_type_bytes(int); void free(void *); "
OBJECTS = {"wire/a": "void hly_a(void) {}",
           "exec/b": "void hly_a(void); void hly_b(void) { hly_a(); }",
           "training/shell/c": "void halay_d(void); void c(void) { halay_d(); }",
           "training/core/d": TYPES + "void d(void *p) { free(p); halay_type_bytes(0); }",
           **{f"comm/{n}": f"void hly_{n - 1}(void); void hly_{n}(void) {{ hly_{n - 1}(); }}"
              for n in range(1, 6)}, "comm/0": "void hly_0(void) {}",
           "api/d": "void halay_d(void) {} void hly_d(void) {}"}
UPWARD = [
    ("exec/late", "int poll(void *, long, int); int f(void *p) { return poll(p, 1, -1); }",
     "waits by poll()"),
    ("wire/a", "void hly_b(void); void hly_a(void) { hly_b(); }",
     "wire/a.c uses hly_b of exec/b.c"),
    ("training/shell/c", "void hly_d(void); void c(void) { hly_d(); }", "shell/c.c uses hly_d"),
    ("training/core/d", "void c(void); void d(void) { c(); }", "core/d.c uses c, and is a pure"),
    ("training/core/d", "void halay_d(void); void d(void) { halay_d(); }", "d.c uses halay_d, and"),
    ("comm/0", "void hly_5(void); void hly_0(void) { hly_5(); }", "6 files of src/ use each other"),
    ("../../waits/late", "long time(long *); long now(void) { return time(0); }",
     "src/waits/late.c uses time, and is a pure part"),
    ("plan/e", "void hly_a(void); void e(void) { hly_a(); }", "plan/e.c uses hly_a"),
]
