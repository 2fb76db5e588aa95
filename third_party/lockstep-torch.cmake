# The part `torch` of an installed Lockstep: the target lockstep::torch, if LibTorch is found.
set(LOCKSTEP_TORCH AUTO)
include(${CMAKE_CURRENT_LIST_DIR}/libtorch.cmake)
# Its C++ interface differs between versions; another version would not link or not work.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_here "${Torch_VERSION}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_built_with "${lockstep_built_with_torch}")
if(torch_found AND NOT torch_here STREQUAL torch_built_with)
  set(torch_found FALSE)
  string(CONCAT lockstep_torch_NOT_FOUND_MESSAGE
         "lockstep::torch was built with LibTorch ${lockstep_built_with_torch}, and ${Torch_DIR} is LibTorch ${Torch_VERSION}. "
         "Build Lockstep with that one, or set Torch_DIR to a LibTorch ${torch_built_with}.")
endif()
set(lockstep_torch_FOUND ${torch_found})
if(torch_found)
  include(${CMAKE_CURRENT_LIST_DIR}/lockstep-torch-targets.cmake)
endif()
