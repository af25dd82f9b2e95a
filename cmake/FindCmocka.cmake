# SPDX-License-Identifier: Apache-2.0
# cmocka as target Cmocka::Cmocka. Its own package file names a target only in later versions and is not relocatable in
# earlier ones (it matters when cross-compiling), so the parts are looked for one by one.
find_path(Cmocka_INCLUDE_DIR cmocka.h)
find_library(Cmocka_LIBRARY cmocka)
mark_as_advanced(Cmocka_INCLUDE_DIR Cmocka_LIBRARY)

if(Cmocka_LIBRARY)
  # The header does not say its version; the pkg-config file beside the library does.
  get_filename_component(cmocka_dir "${Cmocka_LIBRARY}" DIRECTORY)
  if(EXISTS "${cmocka_dir}/pkgconfig/cmocka.pc")
    file(STRINGS "${cmocka_dir}/pkgconfig/cmocka.pc" cmocka_version REGEX "^Version:")
    string(REGEX REPLACE "^Version: *" "" Cmocka_VERSION "${cmocka_version}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cmocka REQUIRED_VARS Cmocka_LIBRARY Cmocka_INCLUDE_DIR VERSION_VAR Cmocka_VERSION)

if(Cmocka_FOUND AND NOT TARGET Cmocka::Cmocka)
  add_library(Cmocka::Cmocka UNKNOWN IMPORTED)
  set_target_properties(Cmocka::Cmocka PROPERTIES
    IMPORTED_LOCATION "${Cmocka_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Cmocka_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Cmocka_INCLUDE_DIR}")
endif()
