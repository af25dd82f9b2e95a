# SPDX-License-Identifier: Apache-2.0
# comet_emulated: libcomet with its device code compiled as C++ for the CPU, in place of the real one or of none, so
# that it is tested on every machine and with the sanitizers. Needs a C++ compiler, which only the tests do.

file(GLOB comet_emulation_sources CONFIGURE_DEPENDS emulation/*.cc emulation/*.c)
list(FILTER comet_emulation_sources EXCLUDE REGEX "/emulation_check\\.cc$")
set(src "${PROJECT_SOURCE_DIR}/src")
file(GLOB_RECURSE comet_emulated_host CONFIGURE_DEPENDS "${src}/codec/cuda/*.c" "${src}/control/cuda/*.c"
  "${src}/store/device/cuda/*.c")
file(GLOB_RECURSE comet_emulated_kernels CONFIGURE_DEPENDS "${src}/codec/cuda/*.cu" "${src}/control/cuda/*.cu"
  "${src}/store/device/cuda/*.cu")
# In this folder alone: where the library itself is built they stay CUDA.
set_source_files_properties(${comet_emulated_kernels} PROPERTIES LANGUAGE CXX)

add_library(comet_emulated STATIC $<TARGET_OBJECTS:comet_objects>
  ${comet_emulation_sources} ${comet_emulated_host} ${comet_emulated_kernels})
target_include_directories(comet_emulated BEFORE PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/emulation")
target_compile_definitions(comet_emulated PUBLIC COMET_HAVE_CUDA=1 COMET_CUDA_EMULATION=1 COMET_CUDA_LEAST_ARCH=80)
target_link_libraries(comet_emulated PUBLIC comet_build)
# Kernels have many variants: compiling them harder takes longer than the tests gain, most of all with the sanitizers'
# checks.
set(comet_emulation_level -O1)
if(COMET_SANITIZE)
  set(comet_emulation_level -O0)
endif()
# a third of the time; a wrong address that is read or written the first one finds as well
if(COMET_SANITIZE MATCHES "address.*undefined")
  list(APPEND comet_emulation_level -fno-sanitize=null,pointer-overflow,object-size)
endif()
target_compile_options(comet_emulated PRIVATE
  "$<$<COMPILE_LANGUAGE:CXX>:${comet_emulation_level};-Wno-maybe-uninitialized>")

# The trainer over it, with stand-ins for cuDNN and cuBLASLt (emulation/train).
file(GLOB_RECURSE comet_emulated_train_host CONFIGURE_DEPENDS "${src}/train/backend/cuda/*.c")
file(GLOB_RECURSE comet_emulated_train_kernels CONFIGURE_DEPENDS "${src}/train/backend/cuda/*.cu")
file(GLOB comet_emulated_train_libraries CONFIGURE_DEPENDS emulation/train/*.c emulation/train/*.cc)
set_source_files_properties(${comet_emulated_train_kernels} PROPERTIES LANGUAGE CXX)
if(TARGET comet_train_objects AND NOT CMAKE_CROSSCOMPILING)
  add_library(comet_train_emulated STATIC $<TARGET_OBJECTS:comet_train_objects> $<TARGET_OBJECTS:comet_data_objects>
    ${comet_emulated_train_host} ${comet_emulated_train_kernels} ${comet_emulated_train_libraries})
  target_include_directories(comet_train_emulated BEFORE PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/emulation/train")
  target_link_libraries(comet_train_emulated PUBLIC comet_emulated PRIVATE comet_train_build comet_images)
  target_compile_options(comet_train_emulated PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${comet_emulation_level};-Wno-maybe-uninitialized>")
  set_target_properties(comet_train_emulated PROPERTIES LINKER_LANGUAGE CXX)
endif()

comet_add_support(comet_test_support_emulated comet_emulated ${comet_support_sources})
if(TARGET comet_train_emulated)
  comet_add_support(comet_test_support_train_emulated comet_test_support_emulated ${comet_support_train})
  target_link_libraries(comet_test_support_train_emulated PUBLIC comet_train_emulated)
endif()

if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/emulation/emulation_check.cc")
  add_executable(emulation_check emulation/emulation_check.cc)
  target_link_libraries(emulation_check PRIVATE comet_test_support_emulated)
  comet_add_test(emulation_check LABEL emulated COMMAND emulation_check)
endif()
