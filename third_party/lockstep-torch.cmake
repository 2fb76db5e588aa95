# The part `torch` of an installed Lockstep: the target lockstep::torch, where LibTorch is.
set(LOCKSTEP_TORCH AUTO)
include(${CMAKE_CURRENT_LIST_DIR}/libtorch.cmake)
set(lockstep_torch_FOUND ${torch_found})
if(torch_found)
  include(${CMAKE_CURRENT_LIST_DIR}/lockstep-torch-targets.cmake)
endif()
