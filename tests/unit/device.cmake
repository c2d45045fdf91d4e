# SPDX-License-Identifier: Apache-2.0
halay_test(unit device SOURCES test_device.c device_body.c LIBS halay_core)
halay_test(unit cuda GPU SOURCES test_cuda.c device_body.c LIBS halay_core cuda_double TIMEOUT 120)
halay_test(unit nccl GPU SOURCES test_nccl.c LIBS halay_core nccl_double cuda_double TIMEOUT 120)
halay_test(unit shared_gpu GPU SOURCES test_shared_gpu.c ../ranks/reference.c LIBS halay_core cuda_double m TIMEOUT 240)
if(NOT HALAY_SANITIZE MATCHES thread) # it has one thread
  halay_test(unit reduce SOURCES test_reduce.c LIBS halay_core TIMEOUT 120)
endif()
halay_test(unit cuda_lacks GPU SOURCES test_cuda_lacks.c LIBS halay_core cuda_lacks)
halay_test(unit cuda_node GPU SOURCES test_cuda_node.c LIBS halay_core)
