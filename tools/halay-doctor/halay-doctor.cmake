# SPDX-License-Identifier: Apache-2.0
# halay-doctor: what is wrong with this machine, and between these machines.
add_executable(halay-doctor halay-doctor/main.c halay-doctor/findings.c halay-doctor/root.c
  halay-doctor/host.c halay-doctor/rdma.c halay-doctor/limits.c halay-doctor/cgroup.c
  halay-doctor/calls.c halay-doctor/software.c halay-doctor/gpu.c halay-doctor/pair.c
  halay-doctor/job.c halay-doctor/conclude.c halay-doctor/print.c halay-doctor/json.c
  halay-doctor/picture.c common/json.c common/library.c)
target_link_libraries(halay-doctor PRIVATE halay m ${CMAKE_DL_LIBS})
install(TARGETS halay-doctor RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
configure_file(halay-doctor/halay-doctor-picture ${CMAKE_BINARY_DIR}/lib/halay/halay-doctor-picture
  COPYONLY)
install(PROGRAMS halay-doctor/halay-doctor-picture DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay)
