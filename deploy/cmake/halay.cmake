# SPDX-License-Identifier: Apache-2.0
# One call a plug-in: halay_plugin(transport shm shm.c ring.c ...)
#   halay_transport_shm        a static library, for the tests that link it in
#   halay-transport-shm.so     the plug-in, in lib/halay/, found at run time
function(halay_plugin kind name)
  set_property(GLOBAL APPEND PROPERTY halay_plugins "${kind} ${name}")
  add_library(halay_${kind}_${name} STATIC EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(halay_${kind}_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  add_library(halay_${kind}_${name}_plugin MODULE ${ARGN})
  target_include_directories(halay_${kind}_${name}_plugin PRIVATE ${PROJECT_SOURCE_DIR}/include)
  set_target_properties(halay_${kind}_${name}_plugin PROPERTIES
    PREFIX "" OUTPUT_NAME halay-${kind}-${name}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/halay)
  if(NOT HALAY_SANITIZE) # whose functions are the program's
    target_link_options(halay_${kind}_${name}_plugin PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS halay_${kind}_${name}_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay)
endfunction()

# halay_find(UCX ucx>=1.12): UCX_FOUND and PkgConfig::UCX. -D HALAY_UCX=OFF does without.
macro(halay_find name module)
  option(HALAY_${name} "build what needs ${module}, where pkg-config finds it" ON)
  find_package(PkgConfig QUIET)
  set(${name}_FOUND FALSE)
  if(HALAY_${name} AND PKG_CONFIG_FOUND)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET "${module}")
  endif()
endmacro()

# halay_has_build_id(target ...): they include hly_build.h.
function(halay_has_build_id)
  foreach(target ${ARGN})
    add_dependencies(${target} halay_build_id)
    target_include_directories(${target} PRIVATE ${HALAY_GENERATED})
  endforeach()
endfunction()

# halay_no_plugin("transport verbs" "why, and what to install")
function(halay_no_plugin plugin why)
  set_property(GLOBAL APPEND PROPERTY halay_no_plugins "${plugin}: ${why}")
endfunction()

# At the end: what is built, and, even where nobody reads the status lines, what is not.
function(halay_tell_plugins)
  get_property(built GLOBAL PROPERTY halay_plugins)
  get_property(missing GLOBAL PROPERTY halay_no_plugins)
  list(JOIN built ", " built)
  message(STATUS "plug-ins that are built: ${built}")
  foreach(plugin ${missing})
    message(NOTICE "-- no plug-in ${plugin}")
  endforeach()
endfunction()

# halay_test_programs(unit test_unit_reduce): the target programs-unit builds them, and what they need.
function(halay_test_programs group)
  if(NOT TARGET programs-${group})
    add_custom_target(programs-${group})
  endif()
  add_dependencies(programs-${group} ${ARGN})
endfunction()

# halay_test(unit reduce SOURCES test_reduce.c LIBS halay_core [WAITS] [GPU] [TIMEOUT s]): one program, one
# ctest. It takes two places of ctest -j, one if it WAITS most of its time: scripts/test gives two a processor.
# GPU: it is over a double of what a GPU needs, and its label is gpu instead of the group's.
function(halay_test group name)
  cmake_parse_arguments(T "WAITS;GPU" "TIMEOUT" "SOURCES;LIBS;ARGS" ${ARGN})
  set(label ${group})
  if(T_GPU)
    set(label gpu)
  endif()
  add_executable(test_${group}_${name} ${T_SOURCES})
  halay_test_programs(${label} test_${group}_${name})
  target_link_libraries(test_${group}_${name} PRIVATE ${T_LIBS} pthread m)
  target_include_directories(test_${group}_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME ${group}/${name} COMMAND test_${group}_${name} ${T_ARGS})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  set_tests_properties(${group}/${name} PROPERTIES LABELS ${label} TIMEOUT ${T_TIMEOUT} COST ${T_TIMEOUT}
    SKIP_RETURN_CODE 77) # the costly ones start first
  if(NOT T_WAITS)
    set_tests_properties(${group}/${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()
