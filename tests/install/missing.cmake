# find_package(lockstep) reports missing components and dependencies.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

# Expects configure to fail with an error that matches REGEX after joining lines.
function(expect_refusal REGEX)
  configure_consumer(${WORK}/missing ${prefix} ${ARGN})
  file(REMOVE_RECURSE ${WORK}/missing)
  execute_process(COMMAND ${configure} RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  expect_match("${said}" "${REGEX}")
  if(status EQUAL 0)
    message(FATAL_ERROR "configured without an error")
  endif()
endfunction()

expect_refusal("name static or shared, not both" -DKIND=static,shared)
expect_refusal("was built without the part nonsense" -DKIND=shared,nonsense)
expect_refusal("apt-get install libpng-dev" -DKIND=static -DCMAKE_DISABLE_FIND_PACKAGE_PNG=ON)
expect_refusal("include those of spdlog" -DKIND=shared -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON)
if(TORCH)
  set(other ${WORK}/other_torch)
  file(WRITE ${other}/TorchConfig.cmake
    "set(TORCH_FOUND TRUE)\nset(TORCH_INCLUDE_DIRS ${other})\nset(TORCH_LIBRARIES \"\")\n")
  file(WRITE ${other}/TorchConfigVersion.cmake "set(PACKAGE_VERSION 99.1.0)\n")
  expect_refusal("was built with LibTorch [0-9.]+, and ${other} is LibTorch 99.1.0"
    -DKIND=shared,torch -DTorch_DIR=${other})
endif()
if(CUDA)
  expect_refusal("link libcudart_static .* COMPONENTS shared" -DKIND=static
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
endif()
