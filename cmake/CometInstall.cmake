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
