# SPDX-License-Identifier: Apache-2.0
# The CUDA compiler. COMET_HAVE_CUDA says whether device code is built; targets with device code link comet_cuda_flags.
# The CUDA runtime is linked statically: the library loads on a machine without a driver or a toolkit, and says so.

set(COMET_HAVE_CUDA OFF)
set(comet_minimum_nvcc 12.0)
option(COMET_CUDA_LINEINFO "Keep the lines of kernels for profilers; triples the size of device code" OFF)
option(COMET_CUDA_QUICK "Compile kernels in a twentieth of the time, to see that they compile: they run slowly" OFF)
set(COMET_CUDA_ARCHS "80;90" CACHE STRING
  "GPUs to make machine code for, as compute capabilities; later ones compile the newest one's PTX at start")

# Why device code cannot be built here, or nothing.
function(comet_cuda_obstacle result)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${result} "there is no CUDA compiler. Put nvcc on PATH or set CUDACXX" PARENT_SCOPE)
    return()
  endif()
  # Asked before the language is enabled: an older compiler would stop CMake with a complaint about architectures.
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(text MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_LESS comet_minimum_nvcc)
    set(${result} "${CMAKE_CUDA_COMPILER} is version ${CMAKE_MATCH_1}, and Comet needs ${comet_minimum_nvcc} or later"
      PARENT_SCOPE)
  else()
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# "80;90" becomes machine code for both and PTX of the newer.
function(comet_cuda_architectures result)
  set(archs ${COMET_CUDA_ARCHS})
  list(SORT archs COMPARE NATURAL)
  set(all ${archs})
  list(TRANSFORM all APPEND "-real")
  list(POP_BACK archs newest)
  set(${result} ${all} "${newest}-virtual" PARENT_SCOPE)
endfunction()

if(NOT COMET_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "COMET_CUDA is AUTO, ON or OFF, not ${COMET_CUDA}")
elseif(NOT COMET_CUDA STREQUAL "OFF")
  comet_cuda_obstacle(comet_obstacle)
  if(NOT comet_obstacle)
    set(COMET_HAVE_CUDA ON)
  elseif(COMET_CUDA STREQUAL "ON")
    message(FATAL_ERROR "COMET_CUDA=ON, but ${comet_obstacle}")
  else()
    message(STATUS "CUDA: not built: ${comet_obstacle}")
  endif()
else()
  message(STATUS "CUDA: not built: COMET_CUDA is OFF")
endif()

if(COMET_HAVE_CUDA)
  comet_cuda_architectures(CMAKE_CUDA_ARCHITECTURES)
  enable_language(CUDA)
  find_package(CUDAToolkit ${comet_minimum_nvcc} REQUIRED)
  if(NOT TARGET CUDA::cudart_static)
    message(FATAL_ERROR "The CUDA toolkit at ${CUDAToolkit_LIBRARY_DIR} has no libcudart_static.a. "
      "To build without CUDA: -DCOMET_CUDA=OFF")
  endif()
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")

  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_CUDA_RUNTIME_LIBRARY None) # linked by name, so that C programs can be linked by the C compiler
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG" CACHE STRING "Flags of the Release build")

  # What device code compiles with. As on the CPU, arithmetic is as written.
  add_library(comet_cuda_flags INTERFACE)
  set(comet_cuda_host_flags ${comet_cxx_warnings} -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off)
  set(comet_cuda_device_flags --fmad=false --ftz=false --prec-div=true --prec-sqrt=true)
  if(COMET_CUDA_LINEINFO)
    list(APPEND comet_cuda_device_flags -lineinfo)
  endif()
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9) # kernels compress well, which takes a while
    list(APPEND comet_cuda_device_flags $<IF:$<BOOL:${COMET_CUDA_QUICK}>,--Ofast-compile=max,--compress-mode=size>)
  endif()
  if(COMET_WERROR)
    list(APPEND comet_cuda_device_flags "SHELL:-Werror all-warnings")
  endif()
  list(JOIN comet_cuda_host_flags "," comet_cuda_host_flags)
  target_compile_options(comet_cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:${comet_cuda_device_flags};-Xcompiler=${comet_cuda_host_flags}>")
  target_include_directories(comet_cuda_flags SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  string(REGEX MATCH "[0-9]+" comet_least_arch "${CMAKE_CUDA_ARCHITECTURES}") # they are sorted
  target_compile_definitions(comet_cuda_flags INTERFACE COMET_HAVE_CUDA=1 COMET_CUDA_LEAST_ARCH=${comet_least_arch})
endif()

# The trainer on a GPU needs the headers of cuDNN 9 and cuBLASLt; the libraries themselves are opened when it starts.
set(COMET_HAVE_CUDNN OFF)
if(COMET_HAVE_CUDA)
  find_path(COMET_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES cudnn cudnn9)
  find_path(COMET_CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(COMET_CUDNN_INCLUDE COMET_CUBLASLT_INCLUDE)
  if(COMET_CUDNN_INCLUDE AND COMET_CUBLASLT_INCLUDE)
    set(COMET_HAVE_CUDNN ON)
    target_include_directories(comet_cuda_flags SYSTEM INTERFACE ${COMET_CUDNN_INCLUDE} ${COMET_CUBLASLT_INCLUDE})
  else()
    message(STATUS "The trainer on a GPU: not built: there are no headers of cuDNN 9 or later (cudnn_graph.h) and "
      "cuBLASLt (cublasLt.h)")
  endif()
endif()
