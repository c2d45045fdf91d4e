# SPDX-License-Identifier: Apache-2.0
# Halay's operations for TensorFlow. No TensorFlow is needed here: its functions are looked up in the one that is loaded.
add_library(halay_tensorflow SHARED tensorflow/abi.c tensorflow/done.c tensorflow/job.c
                                    tensorflow/kernel.c tensorflow/ops.c)
target_link_libraries(halay_tensorflow PRIVATE halay pthread ${CMAKE_DL_LIBS})
if(NOT HALAY_SANITIZE)
  target_link_options(halay_tensorflow PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(halay_tensorflow PROPERTIES LINKER_LANGUAGE C INSTALL_RPATH "$ORIGIN")
install(TARGETS halay_tensorflow LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
