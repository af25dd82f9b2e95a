# SPDX-License-Identifier: Apache-2.0
# 64-bit Arm with Debian's cross compilers (gcc- and g++-aarch64-linux-gnu); programs run under qemu-user. zlib, cmocka,
# DLPack, libjpeg-turbo and libpng for Arm come from build/aarch64-dependencies (scripts/aarch64_dependencies.sh).

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(comet_arm_root "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-dependencies" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH "${comet_arm_root}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(CMAKE_CROSSCOMPILING_EMULATOR
  "qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${comet_arm_root}/usr/lib/aarch64-linux-gnu")
