# SPDX-License-Identifier: Apache-2.0
# Readers of image files, for comet_data (src/data) only: libcomet itself does not need them.

include(CheckCSourceCompiles)

find_package(JPEG)
find_path(COMET_JCONFIG_INCLUDE_DIR jconfig.h) # Debian has it in a folder of the architecture
mark_as_advanced(COMET_JCONFIG_INCLUDE_DIR)
if(JPEG_FOUND AND COMET_JCONFIG_INCLUDE_DIR)
  set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIRS} ${COMET_JCONFIG_INCLUDE_DIR})
  check_c_source_compiles("
    #include <stdio.h>
    #include <jpeglib.h>
    #if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 1005000
    #error another libjpeg
    #endif
    int main(void) { return 0; }" COMET_HAVE_LIBJPEG_TURBO)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
if(NOT COMET_HAVE_LIBJPEG_TURBO)
  unset(COMET_HAVE_LIBJPEG_TURBO CACHE) # it is looked for again next time
  message(FATAL_ERROR
    "libjpeg-turbo 1.5 or later not found (JPEG images). On Debian: apt-get install libjpeg62-turbo-dev")
endif()

find_package(PNG 1.6.22)
if(NOT PNG_FOUND)
  message(FATAL_ERROR "libpng 1.6.22 or later not found (PNG images). On Debian: apt-get install libpng-dev")
endif()

add_library(comet_images INTERFACE)
target_include_directories(comet_images SYSTEM INTERFACE ${COMET_JCONFIG_INCLUDE_DIR})
target_link_libraries(comet_images INTERFACE JPEG::JPEG PNG::PNG)
