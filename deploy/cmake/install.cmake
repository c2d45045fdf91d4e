# SPDX-License-Identifier: Apache-2.0
# What others find an installed Halay with: halay.pc, halayConfig.cmake; and the manual pages. All of
# it is relative to itself, so that the tree can be moved. Libraries, plug-ins, tools and headers are
# installed where they are built.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/halay)
install(EXPORT halay NAMESPACE halay:: FILE halayTargets.cmake DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/halayConfig.cmake.in
  ${CMAKE_BINARY_DIR}/halayConfig.cmake INSTALL_DESTINATION ${package})
# Before version 1 a new minor version may change what programs are built against.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/halayConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/halayConfig.cmake ${CMAKE_BINARY_DIR}/halayConfigVersion.cmake
  DESTINATION ${package})

file(RELATIVE_PATH HALAY_PC_PREFIX
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/halay.pc.in ${CMAKE_BINARY_DIR}/halay.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/halay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# In a wheel the tree lies in the package's folder: no MANPATH leads there, and the interpreter reads a .pth beside it.
if(SKBUILD)
  install(FILES python/halay-horovod.pth DESTINATION ${SKBUILD_PLATLIB_DIR})
  return()
endif()

# Python of any version finds the package by PYTHONPATH, and it the library beside it. A wheel has it elsewhere.
option(HALAY_PYTHON_PACKAGE "install the Python package into LIBDIR/halay/python" ON)
if(HALAY_PYTHON_PACKAGE)
  install(DIRECTORY python/halay DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay/python
    PATTERN __pycache__ EXCLUDE)
endif()

set(modules ${CMAKE_INSTALL_DATADIR}/modulefiles/halay)
file(RELATIVE_PATH HALAY_MODULE_UP ${CMAKE_INSTALL_PREFIX}/${modules} ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/halay.modulefile.in ${CMAKE_BINARY_DIR}/halay.modulefile @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/halay.modulefile DESTINATION ${modules} RENAME ${PROJECT_VERSION})
include(${CMAKE_CURRENT_LIST_DIR}/packages.cmake)

# docs/man/NAME.SECTION.md. A page for several functions is found under the name of each.
find_program(HALAY_PANDOC pandoc)
if(NOT HALAY_PANDOC)
  message(STATUS "pandoc not found (Debian: pandoc): no manual pages; docs/man has their text")
  return()
endif()
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.md)
foreach(source ${pages})
  if(NOT source MATCHES "/([a-z_-]+)[.]([137])[.]md$")
    message(FATAL_ERROR "${source} is not named NAME.SECTION.md")
  endif()
  set(name ${CMAKE_MATCH_1})
  set(section ${CMAKE_MATCH_2})
  set(folder ${CMAKE_BINARY_DIR}/man/man${section})
  set(page ${folder}/${name}.${section})
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${page} DEPENDS ${source} COMMAND ${HALAY_PANDOC} -s -f markdown-smart
    -t man -M title=${name} -M section=${section} -V "header=Halay's manual"
    -V "footer=Halay ${PROJECT_VERSION}" -o ${page} ${source} VERBATIM)
  list(APPEND made ${page})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} names LIMIT_COUNT 1 REGEX " - ")
  string(REGEX REPLACE " - .*" "" names "${names}")
  string(REPLACE ", " ";" names "${names}")
  list(REMOVE_ITEM names ${name})
  if(section STREQUAL 3)
    foreach(other ${names})
      file(CONFIGURE OUTPUT ${folder}/${other}.3 CONTENT ".so man3/${name}.3\n")
      list(APPEND links ${folder}/${other}.3)
    endforeach()
  endif()
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
install(FILES ${links} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
add_custom_target(man ALL DEPENDS ${made})
