# Programs on a machine with simulated GPUs: the sources that call CUDA, compiled by the host's
# compiler, and the folder of this file instead of CUDA and its libraries. They need only CUDA's
# headers, even with LOCKSTEP_CUDA=OFF.
if(NOT CUDAToolkit_FOUND)
  find_package(CUDAToolkit QUIET)
endif()
set(pretended_gpus_found ${CUDAToolkit_FOUND})
find_path(CUDNN_INCLUDE cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
set(pretended_includes ${CUDAToolkit_INCLUDE_DIRS})
foreach(include CUDNN_INCLUDE CUBLASLT_INCLUDE)
  mark_as_advanced(${include})
  if(${include})
    list(APPEND pretended_includes ${${include}})
  endif()
endforeach()
set(pretended_cuda ${CMAKE_CURRENT_LIST_DIR})

# Objects with the CUDA of this machine.
function(pretended_objects NAME)
  add_library(${NAME} OBJECT ${ARGN})
  target_include_directories(${NAME} BEFORE PRIVATE ${pretended_cuda}/include)
  target_include_directories(${NAME} SYSTEM PRIVATE ${pretended_includes})
  target_link_libraries(${NAME} PRIVATE lockstep_device)
  set_target_properties(${NAME} PROPERTIES UNITY_BUILD OFF)  # each stands for a library of its own
  # Unlike tests, they compute for minutes.
  if(NOT LOCKSTEP_SANITIZE)
    target_compile_options(${NAME} PRIVATE -O2)
  endif()
endfunction()

# The sources of a module, with what the module itself includes.
function(pretended_module MODULE)
  get_property(sources GLOBAL PROPERTY LOCKSTEP_GPU_SOURCES_${MODULE})
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  # nvcc does not issue these warnings either.
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
    "-include;${pretended_cuda}/include/pretended_nvcc.h;-Wno-conversion;-Wno-shadow;-Wno-pedantic;-Wno-unknown-pragmas;-Wno-uninitialized;-Wno-maybe-uninitialized")
  pretended_objects(pretended_${MODULE} ${sources})
  lockstep_group_sources(pretended_${MODULE})
  target_include_directories(pretended_${MODULE} SYSTEM PRIVATE
    $<TARGET_PROPERTY:lockstep_${MODULE},INCLUDE_DIRECTORIES>)
  target_compile_definitions(pretended_${MODULE} PRIVATE
    $<TARGET_PROPERTY:lockstep_${MODULE},COMPILE_DEFINITIONS>)
endfunction()

if(pretended_gpus_found)
  set(runtime devices driver errors fiber_stack graphs grid machine memory queue streams)
  if(NOT LOCKSTEP_SANITIZE)
    list(APPEND runtime fiber)
  elseif(LOCKSTEP_SANITIZE MATCHES thread)
    list(APPEND runtime fiber_sanitized sanitizer_switch_thread)
  else()
    list(APPEND runtime fiber_sanitized sanitizer_switch_address)
  endif()
  list(TRANSFORM runtime REPLACE "(.+)" "${pretended_cuda}/\\1.cpp")
  pretended_objects(pretended_cuda ${runtime} ${pretended_cuda}/../pretend_gpu.cpp)
  # Libraries, where their headers are.
  set(libraries elements)
  if(CUDNN_INCLUDE)
    list(APPEND libraries convolution cudnn_convolution cudnn_descriptors cudnn_graph
      cudnn_graph_descriptors)
  endif()
  if(CUBLASLT_INCLUDE)
    list(APPEND libraries cublaslt cublaslt_descriptors)
  endif()
  list(TRANSFORM libraries REPLACE "(.+)" "${pretended_cuda}/\\1.cpp")
  pretended_objects(pretended_libraries ${libraries})
  get_property(modules GLOBAL PROPERTY LOCKSTEP_GPU_MODULES)
  list(REMOVE_DUPLICATES modules)
  foreach(module ${modules})
    if(NOT module STREQUAL "model" OR (CUDNN_INCLUDE AND CUBLASLT_INCLUDE))
      pretended_module(${module})
    endif()
  endforeach()
  if(nccl_found)
    pretended_objects(pretended_nccl ${pretended_cuda}/../pretend_collective.cpp
      ${pretended_cuda}/../pretend_nccl.cpp)
    target_link_libraries(pretended_nccl PRIVATE lockstep_allreduce)
    target_include_directories(pretended_nccl SYSTEM PRIVATE ${nccl_includes})
  endif()
endif()

# lockstep_on_pretended_gpus(TARGET MODULE ... [nccl]): TARGET uses simulated GPUs, with the GPU
# sources of device/ and of the modules that have a target pretended_MODULE, and of NCCL on request
# if it is found. They precede the libraries that TARGET links, so that no NVIDIA library is loaded.
function(lockstep_on_pretended_gpus TARGET)
  foreach(part cuda libraries device ${ARGN})
    if(NOT part STREQUAL "nccl" OR nccl_found)
      target_sources(${TARGET} PRIVATE $<TARGET_OBJECTS:pretended_${part}>)
    endif()
  endforeach()
  if("nccl" IN_LIST ARGN AND nccl_found)
    target_include_directories(${TARGET} SYSTEM PRIVATE ${nccl_includes})
  endif()
  target_include_directories(${TARGET} BEFORE PRIVATE ${pretended_cuda}/include)
  target_include_directories(${TARGET} SYSTEM PRIVATE ${pretended_includes})
endfunction()
