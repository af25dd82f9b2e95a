# SPDX-License-Identifier: Apache-2.0
# Installing, and how other projects find what was installed: find_package(comet CONFIG) and pkg-config comet.

include(CMakePackageConfigHelpers)

set(comet_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/comet")
install(TARGETS comet EXPORT comet-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT comet-targets NAMESPACE comet:: DESTINATION ${comet_cmake_dir})
if(TARGET comet_command)
  install(TARGETS comet_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# What the command says of itself: its manual page, and scripts that make shells complete its options. A command of
# another machine cannot be asked.
if(TARGET comet_command AND NOT CMAKE_CROSSCOMPILING)
  set(comet_words "${PROJECT_BINARY_DIR}/words")
  add_custom_command(OUTPUT "${comet_words}/comet.1" "${comet_words}/comet" "${comet_words}/_comet"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${comet_words}"
    COMMAND comet_command manual > "${comet_words}/comet.1"
    COMMAND comet_command completion bash > "${comet_words}/comet"
    COMMAND comet_command completion zsh > "${comet_words}/_comet"
    DEPENDS comet_command VERBATIM)
  add_custom_target(comet_words ALL DEPENDS "${comet_words}/comet.1")
  install(FILES "${comet_words}/comet.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES "${comet_words}/comet" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES "${comet_words}/_comet" DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

configure_package_config_file(cmake/comet-config.cmake.in comet-config.cmake INSTALL_DESTINATION ${comet_cmake_dir})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(comet-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/comet-config.cmake ${PROJECT_BINARY_DIR}/comet-config-version.cmake
  DESTINATION ${comet_cmake_dir})

# The .pc file finds its prefix from where it lies, so that an installation may be moved.
file(RELATIVE_PATH comet_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" comet_pc_prefix "${comet_pc_prefix}")
set(comet_pc_cuda "")
if(COMET_HAVE_CUDA)
  cmake_path(GET CUDA_cudart_static_LIBRARY PARENT_PATH comet_cudart_dir)
  set(comet_pc_cuda "-L${comet_cudart_dir} -lcudart_static -ldl -lrt ")
endif()
configure_file(cmake/comet.pc.in comet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/comet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
