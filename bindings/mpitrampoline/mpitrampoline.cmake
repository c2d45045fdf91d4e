# SPDX-License-Identifier: Apache-2.0
# libhalay_mpi.so: what MPITRAMPOLINE_LIB names. Its functions are found by name alone, so none is declared.
add_library(halay_mpi SHARED mpitrampoline/calls.c mpitrampoline/comms.c mpitrampoline/job.c)
target_include_directories(halay_mpi PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(halay_mpi PRIVATE _GNU_SOURCE)
target_compile_options(halay_mpi PRIVATE -fvisibility=default -Wno-missing-prototypes)
target_link_libraries(halay_mpi PRIVATE halay pthread)
target_link_options(halay_mpi PRIVATE -Wl,--no-undefined -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/mpitrampoline/exports.map)
set_target_properties(halay_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS halay_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
