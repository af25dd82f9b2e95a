# SPDX-License-Identifier: Apache-2.0
# oneDNN 2.6 or later (2.x or 3.x) as target OneDNN::OneDNN. Its own package file is not everywhere the same (Debian's
# names OpenCL parts that need not be installed), so the parts are looked for one by one.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

if(OneDNN_INCLUDE_DIR)
  file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" onednn_lines
    REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
    OneDNN_VERSION "${onednn_lines}")
  # Which threads it runs on: with OpenMP their number is set through OpenMP.
  file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" onednn_runtime
    REGEX "define DNNL_CPU_THREADING_RUNTIME ")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION)

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
  if(onednn_runtime MATCHES "RUNTIME_OMP")
    set(OneDNN_OPENMP ON)
  else()
    set(OneDNN_OPENMP OFF)
  endif()
endif()
