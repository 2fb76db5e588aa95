function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
# What is loaded when first needed is none of the program's own libraries.
file(GLOB_RECURSE targets ${WORK}/prefix/*/lockstepTargets*.cmake)
foreach(file ${targets})
  file(STRINGS ${file} asked_for REGEX "cudnn|cublas|nccl")
  if(asked_for)
    message(FATAL_ERROR "${file} asks for ${asked_for}")
  endif()
endforeach()
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/prefix/bin/lockstep version)
run(${WORK}/build/program)
