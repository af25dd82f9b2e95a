# SPDX-License-Identifier: Apache-2.0
# The compiler, and the flags that all of Comet's own code is built with.
# C is the language of the library; C++ is for tests (tests/emulation.cmake), CUDA has a file of its own.
# Targets get them by linking comet_flags, privately: nothing of this reaches an installed target.

include(CheckCCompilerFlag)

if(NOT CMAKE_C_COMPILER_ID MATCHES "^(GNU|Clang|AppleClang)$")
  message(FATAL_ERROR "Comet needs gcc or clang, not ${CMAKE_C_COMPILER_ID}. On Debian: apt-get install gcc")
endif()
set(comet_minimum_GNU 9)
set(comet_minimum_Clang 9)
set(comet_minimum_AppleClang 12)
if(CMAKE_C_COMPILER_VERSION VERSION_LESS comet_minimum_${CMAKE_C_COMPILER_ID})
  message(FATAL_ERROR "Comet needs ${CMAKE_C_COMPILER_ID} ${comet_minimum_${CMAKE_C_COMPILER_ID}} or later, "
    "${CMAKE_C_COMPILER} is ${CMAKE_C_COMPILER_VERSION}")
endif()
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8 OR CMAKE_C_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "Comet needs a 64-bit little-endian machine")
endif()

add_library(comet_flags INTERFACE)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Streams are the same on every machine, so arithmetic is as written: no contraction to fma, nothing like -ffast-math.
target_compile_options(comet_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
target_compile_definitions(comet_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:_POSIX_C_SOURCE=200809L>)

set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG" CACHE STRING "Flags of the Release build")
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

set(comet_c_warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wformat=2 -Wno-format-nonliteral -Wimplicit-fallthrough
  -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
  -Wwrite-strings -Wpointer-arith
  -Wconversion -Wno-sign-conversion) # what may change a value is written as a cast
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND comet_c_warnings -Wdouble-promotion) # clang means NAN and INFINITY too
endif()
# C++ is kernels: they include C headers with initializers that name some members, and have pragmas for another
# compiler.
set(comet_cxx_warnings -Wall -Wextra -Wno-missing-field-initializers -Wno-unknown-pragmas)
if(COMET_WERROR)
  list(APPEND comet_c_warnings -Werror)
  list(APPEND comet_cxx_warnings -Werror)
endif()
target_compile_options(comet_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:${comet_c_warnings}>" "$<$<COMPILE_LANGUAGE:CXX>:${comet_cxx_warnings}>")

if(COMET_SANITIZE)
  # Everything linked into one program must agree on these, so they are global.
  set(comet_sanitize -fsanitize=${COMET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${comet_sanitize}>")
  add_link_options(-fsanitize=${COMET_SANITIZE})
endif()
if(COMET_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "COMET_FUZZ needs clang (libFuzzer). On Debian: apt-get install clang")
  endif()
  # the fuzz programs themselves link with -fsanitize=fuzzer
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()
if(COMET_COVERAGE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:--coverage;-fprofile-update=atomic>")
  add_link_options(--coverage)
endif()

# Instruction sets beyond the baseline are chosen when the program runs: only files named for one are built with its
# flags.
set(COMET_AVX2_FLAGS -mavx2 -mfma -mbmi -mbmi2 -mpopcnt)
set(COMET_AVX512_FLAGS ${COMET_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2
  -mavx512bitalg -mavx512vpopcntdq -mgfni -mprefer-vector-width=512)
set(COMET_X86_64 OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(JOIN COMET_AVX512_FLAGS " " comet_avx512_joined)
  check_c_compiler_flag("${comet_avx512_joined}" COMET_COMPILER_HAS_AVX512)
  if(COMET_COMPILER_HAS_AVX512)
    set(COMET_X86_64 ON)
    target_compile_definitions(comet_flags INTERFACE COMET_X86_64=1)
  else()
    message(WARNING "${CMAKE_C_COMPILER} does not know ${comet_avx512_joined}: only the reference code is built")
  endif()
endif()
