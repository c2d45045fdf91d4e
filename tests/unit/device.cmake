# SPDX-License-Identifier: Apache-2.0
halay_test(unit device SOURCES test_device.c device_body.c LIBS halay_core)
if(NOT HALAY_SANITIZE MATCHES thread) # it has one thread
  halay_test(unit reduce SOURCES test_reduce.c LIBS halay_core TIMEOUT 120)
endif()
