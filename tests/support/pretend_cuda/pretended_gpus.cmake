# Programs on a machine that pretends to have GPUs: the sources of the rooms that call CUDA, compiled by the host's compiler, and the
# folder of this file in the place of CUDA and its libraries. CUDA's headers are all they need, with LOCKSTEP_CUDA=OFF too.
set(pretended_gpus_found FALSE)
if(NOT CUDAToolkit_FOUND)
  find_package(CUDAToolkit QUIET)
endif()
if(CUDAToolkit_FOUND)
  set(pretended_gpus_found TRUE)
endif()
set(pretended_cuda ${CMAKE_CURRENT_LIST_DIR})

if(pretended_gpus_found)
  get_property(gpu_sources GLOBAL PROPERTY LOCKSTEP_GPU_SOURCES)
  set(kernels ${gpu_sources})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
    "-include;${pretended_cuda}/include/pretended_nvcc.h;-Wno-conversion;-Wno-shadow;-Wno-pedantic;-Wno-unknown-pragmas;-Wno-uninitialized;-Wno-maybe-uninitialized")
  set(pretended_runtime devices driver errors fiber fiber_stack graphs grid machine memory queue streams)
  list(TRANSFORM pretended_runtime REPLACE "(.+)" "${pretended_cuda}/\\1.cpp")
  add_library(lockstep_pretended_gpus OBJECT ${gpu_sources} ${pretended_runtime} ${pretended_cuda}/../pretend_gpu.cpp)
  target_include_directories(lockstep_pretended_gpus BEFORE PRIVATE ${pretended_cuda}/include)
  target_include_directories(lockstep_pretended_gpus SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(lockstep_pretended_gpus PRIVATE lockstep_options lockstep_allreduce)
endif()

# Gives a test program the pretended GPUs. What it links stays: these objects come before the libraries, so that nothing of CUDA's own
# is asked for.
function(lockstep_on_pretended_gpus TARGET)
  target_sources(${TARGET} PRIVATE $<TARGET_OBJECTS:lockstep_pretended_gpus>)
  target_include_directories(${TARGET} BEFORE PRIVATE ${pretended_cuda}/include)
  target_include_directories(${TARGET} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_options(${TARGET} PRIVATE -Wl,--as-needed)
endfunction()
