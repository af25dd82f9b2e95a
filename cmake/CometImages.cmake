# SPDX-License-Identifier: Apache-2.0
# Readers of image files, for comet_data (src/data) only: libcomet itself does not need them.

include(CheckCSourceCompiles)

find_package(JPEG)
if(JPEG_FOUND)
  set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIRS})
  check_c_source_compiles("
    #include <stdio.h>
    #include <jpeglib.h>
    #if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 1005000
    #error another libjpeg
    #endif
    int main(void) { return 0; }" COMET_HAVE_LIBJPEG_TURBO)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
if(NOT JPEG_FOUND OR NOT COMET_HAVE_LIBJPEG_TURBO)
  message(FATAL_ERROR "libjpeg-turbo 1.5 or later not found (JPEG images). On Debian: apt-get install libjpeg62-turbo-dev")
endif()

find_package(PNG 1.6.0)
if(NOT PNG_FOUND)
  message(FATAL_ERROR "libpng 1.6 or later not found (PNG images). On Debian: apt-get install libpng-dev")
endif()
