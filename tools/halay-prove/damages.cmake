# SPDX-License-Identifier: Apache-2.0
# Copies of functions that halay-prove explores, each with one place damaged: the exploration has to refuse all of them.
# damages() begins a list: its name, the header of its model, the type and the list of the functions there, and their
# sources. damage() adds a copy to it. damages_end() makes the table hly_damaged_<name>. A text that is not there
# exactly once is an error, so that the lists keep up with the sources. DAMAGED: the sources of all copies.
set(DAMAGED "")

macro(damages name header type each)
  set(damages_name ${name})
  set(damages_header ${header})
  set(damages_type ${type})
  set(damages_each ${each})
  set(damages_text "")
  set(damages_number 0)
  set(damages_declared "")
  set(damages_listed "")
  foreach(source ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${source})
    file(READ ${PROJECT_SOURCE_DIR}/${source} part)
    string(REPLACE "#include \"world.h\"" "#include \"${header}\"" part "${part}")
    string(APPEND damages_text "${part}")
  endforeach()
  string(REGEX MATCHALL "\n[a-z][a-z0-9_ ]* (hly_[a-z_]+)\\(" damages_functions "${damages_text}")
  list(TRANSFORM damages_functions REPLACE ".* (hly_[a-z_]+).*" "\\1")
  list(REMOVE_DUPLICATES damages_functions)
endmacro()

macro(damage what from to)
  string(FIND "${damages_text}" "${from}" first)
  string(FIND "${damages_text}" "${from}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "the source of ${damages_name} has not exactly once: ${from}")
  endif()
  string(REPLACE "${from}" "${to}" damaged_text "${damages_text}")
  set(damaged_names "")
  foreach(name ${damages_functions})
    string(APPEND damaged_names "#define ${name} d${damages_number}_${name}\n")
  endforeach()
  set(damaged_extern "extern const ${damages_type} damaged_${damages_name}_${damages_number};\n")
  set(damaged_file ${CMAKE_CURRENT_BINARY_DIR}/damaged/${damages_name}${damages_number}.c)
  file(CONFIGURE OUTPUT ${damaged_file} @ONLY CONTENT "${damaged_names}${damaged_text}
#include \"${damages_header}\"
${damaged_extern}const ${damages_type} damaged_${damages_name}_${damages_number} = {\"${what}\", ${damages_each}(HLY_IS)};
")
  list(APPEND DAMAGED ${damaged_file})
  string(APPEND damages_declared "${damaged_extern}")
  string(APPEND damages_listed "&damaged_${damages_name}_${damages_number}, ")
  math(EXPR damages_number "${damages_number} + 1")
endmacro()

macro(damages_end)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/damaged/${damages_name}s.c @ONLY CONTENT
    "#include \"${damages_header}\"
${damages_declared}const void *const hly_damaged_${damages_name}[] = {${damages_listed}NULL};
")
  list(APPEND DAMAGED ${CMAKE_CURRENT_BINARY_DIR}/damaged/${damages_name}s.c)
endmacro()
