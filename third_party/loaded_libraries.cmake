# Libraries of GPUs that are loaded when first needed: Lockstep is compiled with their headers and
# linked without them, so that it starts where they are absent. An installed Lockstep asks for none
# of them.
set(nccl_found FALSE)
if(cuda_found)
  find_path(CUDNN_INCLUDE cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  set(nccl_registers "")  # NCCL 2.19 and newer
  if(NCCL_INCLUDE AND NCCL_LIBRARY)
    file(STRINGS ${NCCL_INCLUDE}/nccl.h nccl_registers REGEX "ncclCommRegister")
  endif()
  if(nccl_registers)
    set(nccl_found TRUE)
    set(nccl_includes ${NCCL_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endif()

# lockstep_loads(SOURCE DEFINITION LIBRARY): SOURCE loads a library, and looks for it last in the
# folder that DEFINITION names, where LIBRARY was found. The functions that it defines have the
# library's names, and must not be found by others who link that library.
function(lockstep_loads SOURCE DEFINITION LIBRARY)
  file(REAL_PATH ${LIBRARY} library)
  get_filename_component(folder ${library} DIRECTORY)
  set_property(SOURCE ${SOURCE} APPEND PROPERTY COMPILE_DEFINITIONS ${DEFINITION}="${folder}")
  set_property(SOURCE ${SOURCE} APPEND PROPERTY COMPILE_OPTIONS -fvisibility=hidden)
endfunction()
