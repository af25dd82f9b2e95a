# SPDX-License-Identifier: Apache-2.0
# What Comet is built from. Every miss says what to install; scripts/setup.sh installs all of it on Debian.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_package(ZLIB 1.2.11)
if(NOT ZLIB_FOUND)
  message(FATAL_ERROR "zlib 1.2.11 or later not found (checksums). On Debian: apt-get install zlib1g-dev")
endif()

find_package(DLPack 0.6 MODULE)
if(NOT DLPack_FOUND)
  message(FATAL_ERROR "dlpack/dlpack.h 0.6 or later not found (tensor exchange). "
    "On Debian: apt-get install libdlpack-dev. Elsewhere: put the header on CMAKE_PREFIX_PATH")
endif()

find_library(COMET_LIBM m)
mark_as_advanced(COMET_LIBM)
add_library(comet_private_dependencies INTERFACE)
target_link_libraries(comet_private_dependencies INTERFACE ZLIB::ZLIB Threads::Threads DLPack::DLPack)
if(COMET_LIBM)
  target_link_libraries(comet_private_dependencies INTERFACE m)
endif()

# Peers that `comet bench` measures beside Comet's codecs. Optional: what is missing is left out of its table.
add_library(comet_peers INTERFACE)
macro(comet_find_peer name header library debian)
  find_path(COMET_${name}_INCLUDE_DIR ${header})
  find_library(COMET_${name}_LIBRARY ${library})
  mark_as_advanced(COMET_${name}_INCLUDE_DIR COMET_${name}_LIBRARY)
  if(COMET_${name}_INCLUDE_DIR AND COMET_${name}_LIBRARY)
    target_compile_definitions(comet_peers INTERFACE COMET_HAVE_${name}=1)
    target_include_directories(comet_peers SYSTEM INTERFACE ${COMET_${name}_INCLUDE_DIR})
    target_link_libraries(comet_peers INTERFACE ${COMET_${name}_LIBRARY})
    message(STATUS "Bench peer ${library}: ${COMET_${name}_LIBRARY}")
  else()
    message(STATUS "Bench peer ${library}: none (on Debian: apt-get install ${debian})")
  endif()
endmacro()
if(COMET_BUILD_COMMAND)
  comet_find_peer(ZFP zfp.h zfp libzfp-dev)
  comet_find_peer(ZSTD zstd.h zstd libzstd-dev)
endif()

if(COMET_BUILD_TESTS)
  if(NOT COMET_FUZZ)
    include(CheckLanguage)
    check_language(CXX)
    if(NOT CMAKE_CXX_COMPILER)
      message(FATAL_ERROR "No C++ compiler found (tests that run kernels on the CPU). On Debian: apt-get install g++. "
        "To build without tests: -DCOMET_BUILD_TESTS=OFF")
    endif()
    enable_language(CXX)
  endif()
  find_package(Cmocka 1.1.5 MODULE)
  if(NOT Cmocka_FOUND)
    message(FATAL_ERROR "cmocka 1.1.5 or later not found (unit tests). On Debian: apt-get install libcmocka-dev. "
      "To build without tests: -DCOMET_BUILD_TESTS=OFF")
  endif()
  if(COMET_BUILD_COMMAND AND NOT CMAKE_CROSSCOMPILING)
    find_package(Python3 3.9 COMPONENTS Interpreter)
    if(NOT Python3_FOUND)
      message(FATAL_ERROR "Python 3.9 or later not found (tests of the command; its standard library is enough). "
        "On Debian: apt-get install python3. To build without tests: -DCOMET_BUILD_TESTS=OFF")
    endif()
  endif()
endif()
