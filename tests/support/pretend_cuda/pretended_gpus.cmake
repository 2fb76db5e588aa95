# Programs on a machine that pretends to have GPUs: the sources of the rooms that call CUDA, compiled by the host's compiler, and the
# folder of this file in the place of CUDA and its libraries. CUDA's headers are all they need, with LOCKSTEP_CUDA=OFF too.
if(NOT CUDAToolkit_FOUND)
  find_package(CUDAToolkit QUIET)
endif()
set(pretended_gpus_found ${CUDAToolkit_FOUND})
set(pretended_cuda ${CMAKE_CURRENT_LIST_DIR})

# Objects with the CUDA of this machine.
function(pretended_objects NAME)
  add_library(${NAME} OBJECT ${ARGN})
  target_include_directories(${NAME} BEFORE PRIVATE ${pretended_cuda}/include)
  target_include_directories(${NAME} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${NAME} PRIVATE lockstep_device)
endfunction()

# The sources of a room, with what the room itself includes.
function(pretended_room ROOM)
  get_property(sources GLOBAL PROPERTY LOCKSTEP_GPU_SOURCES_${ROOM})
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  # nvcc does not give these warnings either.
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
    "-include;${pretended_cuda}/include/pretended_nvcc.h;-Wno-conversion;-Wno-shadow;-Wno-pedantic;-Wno-unknown-pragmas;-Wno-uninitialized;-Wno-maybe-uninitialized")
  pretended_objects(pretended_${ROOM} ${sources})
  target_include_directories(pretended_${ROOM} SYSTEM PRIVATE $<TARGET_PROPERTY:lockstep_${ROOM},INCLUDE_DIRECTORIES>)
  target_compile_definitions(pretended_${ROOM} PRIVATE $<TARGET_PROPERTY:lockstep_${ROOM},COMPILE_DEFINITIONS>)
endfunction()

if(pretended_gpus_found)
  set(runtime devices driver errors fiber fiber_stack graphs grid machine memory queue streams)
  list(TRANSFORM runtime REPLACE "(.+)" "${pretended_cuda}/\\1.cpp")
  pretended_objects(pretended_cuda ${runtime} ${pretended_cuda}/../pretend_gpu.cpp)
  # Libraries, where their headers are.
  find_path(CUDNN_INCLUDE cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(pretended_cublaslt_include cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(pretended_cublaslt_include)
  set(libraries elements)
  if(CUDNN_INCLUDE)
    list(APPEND libraries convolution cudnn_convolution cudnn_descriptors)
  endif()
  if(pretended_cublaslt_include)
    list(APPEND libraries cublaslt cublaslt_descriptors)
  endif()
  list(TRANSFORM libraries REPLACE "(.+)" "${pretended_cuda}/\\1.cpp")
  pretended_objects(pretended_libraries ${libraries})
  if(CUDNN_INCLUDE)
    target_include_directories(pretended_libraries SYSTEM PRIVATE ${CUDNN_INCLUDE})
  endif()
  pretended_room(device)
  pretended_room(allreduce)
endif()

# lockstep_on_pretended_gpus(TARGET ROOM ...): TARGET sees pretended GPUs, and runs the sources for GPUs of device/ and of the rooms. They
# come before the libraries that TARGET links, so that nothing of CUDA's own is asked for.
function(lockstep_on_pretended_gpus TARGET)
  foreach(part cuda libraries device ${ARGN})
    target_sources(${TARGET} PRIVATE $<TARGET_OBJECTS:pretended_${part}>)
  endforeach()
  target_include_directories(${TARGET} BEFORE PRIVATE ${pretended_cuda}/include)
  target_include_directories(${TARGET} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_options(${TARGET} PRIVATE -Wl,--as-needed)
endfunction()
