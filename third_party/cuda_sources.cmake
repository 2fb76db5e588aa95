# CUDA sources of a module, compiled by nvcc into objects of its library. CUDA is not a language of
# the project, so that an installed Lockstep does not require nvcc, and C++ warnings and tools that
# read compile_commands.json do not apply to these sources.
set(LOCKSTEP_CUDA_ARCHITECTURES "80;90" CACHE STRING
  "GPUs to compile kernels for; newer ones than the last compile its PTX when they load it")

# lockstep_cuda_sources(TARGET FILE.cu ...)
function(lockstep_cuda_sources TARGET)
  # -lineinfo: profilers and compute-sanitizer name the source line. The code is the same.
  set(flags -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall,-Wextra
    -I${PROJECT_SOURCE_DIR})
  if(LOCKSTEP_WERROR)
    list(APPEND flags -Werror=all-warnings)
  endif()
  foreach(architecture ${LOCKSTEP_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET LOCKSTEP_CUDA_ARCHITECTURES -1 newest)
  list(APPEND flags -gencode=arch=compute_${newest},code=compute_${newest})
  foreach(source ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${CUDAToolkit_NVCC_EXECUTABLE} ${flags} -MD -MF
      ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Compiling ${source} for GPUs ${LOCKSTEP_CUDA_ARCHITECTURES}" VERBATIM)
    target_sources(${TARGET} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_CUDA_OBJECTS_${TARGET} ${object})
  endforeach()
endfunction()

# lockstep_gpu_sources(MODULE FILE ... [NEEDS VARIABLE ...] OTHERWISE FILE ...): GPU sources of a
# module, .cpp and .cu, and the sources that replace them if CUDA is absent or one of the variables,
# such as CUDNN_LIBRARY, is not true. Tests compile the former for simulated GPUs
# (tests/support/pretend_cuda).
function(lockstep_gpu_sources MODULE)
  cmake_parse_arguments(GPU "" "" "NEEDS;OTHERWISE" ${ARGN})
  list(TRANSFORM GPU_UNPARSED_ARGUMENTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_GPU_MODULES ${MODULE})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_GPU_SOURCES_${MODULE} ${paths})
  foreach(needed cuda_found ${GPU_NEEDS})
    if(NOT ${needed})
      target_sources(lockstep_${MODULE} PRIVATE ${GPU_OTHERWISE})
      # Separate objects, which the linker omits from tests with simulated GPUs.
      set_source_files_properties(${GPU_OTHERWISE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      return()
    endif()
  endforeach()
  set(kernels ${GPU_UNPARSED_ARGUMENTS})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  list(FILTER GPU_UNPARSED_ARGUMENTS EXCLUDE REGEX "\\.cu$")
  # One object, or separate ones where tests replace some: the linker omits them from tests with
  # simulated GPUs.
  set(gpu lockstep_${MODULE}_gpu)
  lockstep_part(${MODULE} gpu ${GPU_UNPARSED_ARGUMENTS})
  target_link_libraries(${gpu} PRIVATE CUDA::cudart_static)
  lockstep_often(${gpu})
  if(MODULE STREQUAL device)
    set_target_properties(${gpu} PROPERTIES UNITY_BUILD OFF)
  endif()
  lockstep_cuda_sources(lockstep_${MODULE} ${kernels})
  target_link_libraries(lockstep_${MODULE} PRIVATE CUDA::cudart_static)
endfunction()
