# Functions shared by the tests of this folder.
cmake_policy(VERSION 3.25)
set(prefix ${WORK}/prefix)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# output_of(OUT COMMAND …): sets OUT to the standard output, without the final newline.
function(output_of OUT)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  set(${OUT} "${text}" PARENT_SCOPE)
endfunction()

function(expect_match TEXT REGEX)
  if(NOT TEXT MATCHES "${REGEX}")
    message(FATAL_ERROR "expected '${REGEX}' in:\n${TEXT}")
  endif()
endfunction()

# Checks that the program trains on two ranks.
function(expect_training PROGRAM)
  output_of(said ${MPIEXEC} -np 2 ${PROGRAM})
  expect_match("${said}" "trained on 203 samples, 2 replicas")
endfunction()

# Checks that the program loads its plugin for TorchScript files: LibTorch rejects a file that only
# looks like one.
function(expect_plugin PROGRAM FOLDER)
  string(ASCII 3 4 end)
  file(WRITE ${FOLDER}/pretended.pt "PK${end}/constants.pkl")
  execute_process(COMMAND ${PROGRAM} train --model ${FOLDER}/pretended.pt --data synthetic:4x4x1,2,8
    ERROR_VARIABLE said RESULT_VARIABLE status)
  expect_match("${status}, ${said}"
    "^2, .*lockstep: error: .*pretended.pt. expected a TorchScript file for LibTorch [0-9.]+; LibTorch: ")
endfunction()

# configure_consumer(FOLDER PREFIX OPTION …)
function(configure_consumer FOLDER PREFIX)
  set(configure ${CMAKE_COMMAND} -S ${TESTS}/consumer -B ${FOLDER} -G ${GENERATOR}
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${PREFIX}
      -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGN}
      PARENT_SCOPE)
endfunction()
