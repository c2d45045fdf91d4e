# SPDX-License-Identifier: Apache-2.0
# Ranks are threads: linked in by the tests (halay_transport_inproc), which share a hub (inproc.h).
# Tests include <inproc/inproc.h>.
halay_plugin(transport inproc inproc/inproc.c inproc/hub.c inproc/way.c inproc/post.c inproc/lend.c
             inproc/progress.c inproc/boot_inproc.c)
target_link_libraries(halay_transport_inproc PUBLIC pthread)
target_include_directories(halay_transport_inproc INTERFACE ${PROJECT_SOURCE_DIR}/transports)
