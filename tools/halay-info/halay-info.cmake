# SPDX-License-Identifier: Apache-2.0
# halay-info: what this installation is and has found; prints and proves single plans.
add_executable(halay-info halay-info/main.c halay-info/plugins.c halay-info/settings.c
  halay-info/plan.c)
target_link_libraries(halay-info PRIVATE halay ${CMAKE_DL_LIBS})
install(TARGETS halay-info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
