# SPDX-License-Identifier: Apache-2.0
# Two MPI libraries of the same objects: libmpi_abi.so.1 has the standard's ABI, libmpi.so.12 MPICH's. generate.py makes
# their header and their wrappers, so they need a Python at build time, but no package of it.
find_package(Python3 3.6 COMPONENTS Interpreter QUIET)
if(NOT Python3_Interpreter_FOUND)
  message(STATUS "no MPI library: Python 3 was not found, which makes its wrappers")
  return()
endif()

file(GLOB mpi_all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/mpi/*.c)
set(mpi_core ${mpi_all})
list(FILTER mpi_core EXCLUDE REGEX "/face[a-z_]*\\.c$")
set(mpi_made ${CMAKE_BINARY_DIR}/generated/mpi)
file(MAKE_DIRECTORY ${mpi_made})
set(mpi_face ${CMAKE_CURRENT_SOURCE_DIR}/mpi)
add_custom_command(
  OUTPUT ${mpi_made}/wrappers.c ${mpi_made}/calls.h ${mpi_made}/numbers.inc ${mpi_made}/mpi.h ${mpi_made}/mpich/mpi.h
  COMMAND Python3::Interpreter ${mpi_face}/generate.py ${mpi_made} ${mpi_all}
  DEPENDS ${mpi_face}/generate.py ${mpi_face}/functions.txt ${mpi_face}/constants.txt ${mpi_face}/mpi.h.in ${mpi_all}
  VERBATIM)
add_custom_target(halay_mpi_made DEPENDS ${mpi_made}/calls.h)

add_library(halay_mpi_core OBJECT ${mpi_core})
add_library(mpi_abi SHARED ${mpi_face}/face.c ${mpi_made}/wrappers.c)
add_library(mpi_mpich SHARED ${mpi_face}/face.c ${mpi_face}/face_mpich.c ${mpi_face}/face_fortran.c
            ${mpi_made}/wrappers.c)
set_target_properties(mpi_abi PROPERTIES SOVERSION 1)
set_target_properties(mpi_mpich PROPERTIES OUTPUT_NAME mpi SOVERSION 12)
target_compile_definitions(mpi_mpich PRIVATE HLY_MPI_MPICH)
foreach(target halay_mpi_core mpi_abi mpi_mpich)
  add_dependencies(${target} halay_mpi_made)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${mpi_face} ${mpi_made})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
endforeach()
foreach(face abi mpich)
  target_compile_options(mpi_${face} PRIVATE -Wno-unused-parameter)
  target_link_libraries(mpi_${face} PRIVATE halay_mpi_core halay pthread m)
  target_link_options(mpi_${face} PRIVATE -Wl,--no-undefined -Wl,--version-script=${mpi_face}/exports-${face}.map)
  set_target_properties(mpi_${face} PROPERTIES INSTALL_RPATH "$ORIGIN/.."
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/halay-mpi
                        LINK_DEPENDS ${mpi_face}/exports-${face}.map)
endforeach()

# Debian's name of MPICH's library, which its packages need.
add_custom_command(TARGET mpi_mpich POST_BUILD
                   COMMAND ${CMAKE_COMMAND} -E create_symlink libmpi.so.12 $<TARGET_FILE_DIR:mpi_mpich>/libmpich.so.12)

# A folder of their own: another MPI of the machine must not be found or replaced by accident. A wheel has the libraries
# alone, for mpi4py and programs that are there: it can have no links, by which programs are built.
if(SKBUILD)
  install(TARGETS mpi_abi mpi_mpich LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay-mpi NAMELINK_SKIP)
  return()
endif()
install(FILES ${CMAKE_BINARY_DIR}/lib/halay-mpi/libmpich.so.12 DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay-mpi)
install(TARGETS mpi_abi mpi_mpich LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay-mpi)
install(FILES ${mpi_made}/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halay-mpi)

# halaycc finds both from where it is: in this tree, and where it is installed.
set(HALAYCC_INCLUDE ../generated/mpi)
set(HALAYCC_LIB ../lib/halay-mpi)
configure_file(mpi/halaycc.in ${CMAKE_BINARY_DIR}/bin/halaycc @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
file(RELATIVE_PATH HALAYCC_INCLUDE ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR}/halay-mpi)
file(RELATIVE_PATH HALAYCC_LIB ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/halay-mpi)
configure_file(mpi/halaycc.in ${CMAKE_BINARY_DIR}/generated/mpi/halaycc @ONLY)
install(PROGRAMS ${CMAKE_BINARY_DIR}/generated/mpi/halaycc DESTINATION ${CMAKE_INSTALL_BINDIR})

# The names that others look for, in a folder that is on nobody's PATH: find_package(MPI) with MPI_HOME=LIBDIR/halay-mpi. None
# is mpirun, to which halayrun itself may hand over a job.
file(RELATIVE_PATH halay_bin ${CMAKE_INSTALL_FULL_LIBDIR}/halay-mpi/bin ${CMAKE_INSTALL_FULL_BINDIR})
foreach(link mpicc=halaycc mpicxx=halaycc mpic++=halaycc mpiexec=halayrun)
  string(REPLACE "=" ";" link ${link})
  list(GET link 0 name)
  list(GET link 1 tool)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib/halay-mpi/bin ${mpi_made}/bin)
  file(CREATE_LINK ../../../bin/${tool} ${CMAKE_BINARY_DIR}/lib/halay-mpi/bin/${name} SYMBOLIC)
  file(CREATE_LINK ${halay_bin}/${tool} ${mpi_made}/bin/${name} SYMBOLIC)
  install(FILES ${mpi_made}/bin/${name} DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay-mpi/bin)
endforeach()
file(RELATIVE_PATH HALAY_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/deploy/cmake/halay-mpi.pc.in ${CMAKE_BINARY_DIR}/halay-mpi.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/halay-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(modules ${CMAKE_INSTALL_DATADIR}/modulefiles/halay-mpi)
file(RELATIVE_PATH HALAY_MODULE_UP ${CMAKE_INSTALL_PREFIX}/${modules} ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/deploy/cmake/halay-mpi.modulefile.in ${CMAKE_BINARY_DIR}/halay-mpi.modulefile @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/halay-mpi.modulefile DESTINATION ${modules} RENAME ${PROJECT_VERSION})
