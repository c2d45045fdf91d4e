# SPDX-License-Identifier: Apache-2.0
# The transports' contract test, for any transport (transport_body.h), and inproc's own.
add_library(halay_transport_body STATIC transport_body.c transport_messages.c transport_memory.c
            transport_life.c)
target_include_directories(halay_transport_body PUBLIC ${PROJECT_SOURCE_DIR}/include
                           ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(halay_transport_body PUBLIC pthread)
if(TARGET halay_transport_inproc)
  halay_test(unit transport_inproc SOURCES test_transport_inproc.c
             LIBS halay_transport_body halay_transport_inproc TIMEOUT 300 WAITS)
  halay_test(unit inproc_faults SOURCES test_inproc_faults.c LIBS halay_transport_inproc)
endif()
# The smallest transport, to begin with (docs/adding-a-transport.md).
halay_test(unit transport_toy SOURCES test_transport_toy.c toy/toy.c LIBS halay_transport_body
           TIMEOUT 300 WAITS)
