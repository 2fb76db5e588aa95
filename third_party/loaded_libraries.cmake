# GPU libraries that are loaded on first use: Lockstep is compiled with their headers but not linked
# to them, so that it starts without them. An installed Lockstep does not depend on them.
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

# lockstep_loads(SOURCE DEFINITION LIBRARY): SOURCE loads a library; the last folder that it
# searches is DEFINITION, the folder of LIBRARY. It defines functions with the library's names,
# which must be hidden from programs that link that library.
function(lockstep_loads SOURCE DEFINITION LIBRARY)
  file(REAL_PATH ${LIBRARY} library)
  get_filename_component(folder ${library} DIRECTORY)
  set_property(SOURCE ${SOURCE} APPEND PROPERTY COMPILE_DEFINITIONS ${DEFINITION}="${folder}")
  set_property(SOURCE ${SOURCE} APPEND PROPERTY COMPILE_OPTIONS -fvisibility=hidden)
endfunction()
