# SPDX-License-Identifier: Apache-2.0
# Named tensors: ranks are threads.
foreach(name training_core training_programmes training_said training_scale training_timeline training_tune training_unnamed)
  halay_test(unit ${name} SOURCES test_${name}.c LIBS halay_core halay_transport_inproc TIMEOUT 300)
endforeach()
foreach(name training training_at_once training_done training_ends training_faults training_join training_stall)
  halay_test(unit ${name} SOURCES test_${name}.c LIBS halay_core halay_transport_inproc TIMEOUT 300 WAITS)
endforeach()
halay_test(unit search SOURCES test_search.c ${PROJECT_SOURCE_DIR}/src/training/core/search.c)
# Tensors of a GPU: over the double of CUDA's driver.
foreach(name training_cuda training_cuda_behind training_cuda_overlap)
  halay_test(unit ${name} SOURCES test_${name}.c LIBS halay_core halay_transport_inproc cuda_double TIMEOUT 300 WAITS GPU)
  target_include_directories(test_unit_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endforeach()
