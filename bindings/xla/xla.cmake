# SPDX-License-Identifier: Apache-2.0
# libhalay_xla.so: what a program of XLA calls. One binary for every jaxlib, and without any to be built.
add_library(halay_xla SHARED xla/gate.c xla/frame.c xla/handlers.c)
target_link_libraries(halay_xla PRIVATE halay pthread)
if(NOT HALAY_SANITIZE) # whose functions are the program's
  target_link_options(halay_xla PRIVATE -Wl,--no-undefined)
endif()
# It lies beside libhalay.so.0, also in a wheel.
set_target_properties(halay_xla PROPERTIES BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
install(TARGETS halay_xla LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
