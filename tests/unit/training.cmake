# SPDX-License-Identifier: Apache-2.0
# Named tensors: ranks are threads.
foreach(name training_programmes training_said training_scale training_timeline training_unnamed)
  halay_test(unit ${name} SOURCES test_${name}.c LIBS halay_core halay_transport_inproc TIMEOUT 300)
endforeach()
foreach(name training training_at_once training_faults training_join training_stall)
  halay_test(unit ${name} SOURCES test_${name}.c LIBS halay_core halay_transport_inproc TIMEOUT 300 WAITS)
endforeach()
