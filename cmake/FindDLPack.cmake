# SPDX-License-Identifier: Apache-2.0
# The header dlpack/dlpack.h as target DLPack::DLPack. DLPack_VERSION is read from the header.
find_path(DLPack_INCLUDE_DIR dlpack/dlpack.h)
mark_as_advanced(DLPack_INCLUDE_DIR)

if(DLPack_INCLUDE_DIR)
  file(STRINGS "${DLPack_INCLUDE_DIR}/dlpack/dlpack.h" dlpack_lines REGEX "^#define DLPACK_(MAJOR_|MINOR_)?VERSION ")
  if("${dlpack_lines}" MATCHES "DLPACK_MAJOR_VERSION ([0-9]+)") # 1.0 and later
    set(DLPack_VERSION ${CMAKE_MATCH_1})
    string(REGEX MATCH "DLPACK_MINOR_VERSION ([0-9]+)" dlpack_minor "${dlpack_lines}")
    string(APPEND DLPack_VERSION ".${CMAKE_MATCH_1}")
  elseif("${dlpack_lines}" MATCHES "DLPACK_VERSION ([0-9]+)") # 60 is 0.6
    math(EXPR dlpack_minor "${CMAKE_MATCH_1} / 10")
    set(DLPack_VERSION 0.${dlpack_minor})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DLPack REQUIRED_VARS DLPack_INCLUDE_DIR VERSION_VAR DLPack_VERSION)

if(DLPack_FOUND AND NOT TARGET DLPack::DLPack)
  add_library(DLPack::DLPack INTERFACE IMPORTED)
  set_target_properties(DLPack::DLPack PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${DLPack_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${DLPack_INCLUDE_DIR}")
endif()
