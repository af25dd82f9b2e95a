# SPDX-License-Identifier: Apache-2.0
# oneDNN, for comet_train (src/train) only: libcomet itself does not need it.

find_package(OneDNN 2.6)
if(NOT OneDNN_FOUND)
  message(FATAL_ERROR "oneDNN 2.6 or later not found (convolutions). On Debian: apt-get install libdnnl-dev")
endif()
if(OneDNN_VERSION VERSION_GREATER_EQUAL 4)
  message(FATAL_ERROR "oneDNN ${OneDNN_VERSION} is not known to src/train/onednn: 2.6 to 3.x are")
endif()
if(OneDNN_OPENMP)
  find_package(OpenMP COMPONENTS C)
  if(NOT OpenMP_C_FOUND)
    message(FATAL_ERROR "OpenMP not found: this oneDNN runs on it. On Debian: apt-get install libgomp1 gcc")
  endif()
endif()
