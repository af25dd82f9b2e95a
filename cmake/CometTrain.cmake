# SPDX-License-Identifier: Apache-2.0
# oneDNN, for comet_train (src/train) only: libcomet itself does not need it.

find_package(OneDNN 2.6)
if(NOT OneDNN_FOUND)
  message(FATAL_ERROR "oneDNN 2.6 or later not found (convolutions). On Debian: apt-get install libdnnl-dev")
endif()
if(OneDNN_VERSION VERSION_GREATER_EQUAL 4)
  message(FATAL_ERROR "oneDNN ${OneDNN_VERSION} is not known to src/train/onednn: 2.6 to 3.x are")
endif()
# Only gcc's OpenMP is the runtime that oneDNN itself is linked with; with two of them in a program their threads would
# be in each other's way. Without it our own threads are used beside oneDNN's, whose number OMP_NUM_THREADS sets.
set(COMET_TRAIN_OPENMP OFF)
if(OneDNN_OPENMP AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  find_package(OpenMP COMPONENTS C)
  if(OpenMP_C_FOUND)
    set(COMET_TRAIN_OPENMP ON)
  endif()
endif()
