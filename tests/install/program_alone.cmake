# Runs cmake --install if only the program was built, with its adapters to MPI, as
# scripts/quickstart does: in a copy of the build folder without anything else.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
set(copy ${WORK}/program_alone/build)
set(installed ${WORK}/program_alone/prefix)
file(REMOVE_RECURSE ${WORK}/program_alone)
file(GLOB_RECURSE scripts RELATIVE ${BUILD} ${BUILD}/cmake_install.cmake)
file(RELATIVE_PATH work ${BUILD} ${WORK})
list(FILTER scripts EXCLUDE REGEX "^${work}/")  # of tests that run at the same time
foreach(script ${scripts})
  file(READ ${BUILD}/${script} text)
  string(REPLACE ${BUILD} ${copy} text "${text}")
  string(REPLACE "OLD_RPATH \"${copy}" "OLD_RPATH \"${BUILD}" text "${text}")  # the program's own
  file(WRITE ${copy}/${script} "${text}")
endforeach()
file(COPY ${BUILD}/apps/lockstep/lockstep DESTINATION ${copy}/apps/lockstep)
file(GLOB adapters ${BUILD}/liblockstep_mpi_*.so)
file(COPY ${adapters} DESTINATION ${copy})

output_of(said ${CMAKE_COMMAND} --install ${copy} --prefix ${installed})
expect_match("${said}"
  "the libraries have not been built.*\ncmake --build ${copy} && cmake --install ${copy} --prefix ${installed}$")
file(GLOB_RECURSE files RELATIVE ${installed} ${installed}/*)
expect_match("${files}" "^bin/lockstep(;lib/lockstep/liblockstep_mpi_[a-z]+\\.so)+$")
output_of(version ${installed}/bin/lockstep --version)
expect_match("${version}" "^lockstep ")
# Installing the missing libraries explicitly is an error.
execute_process(COMMAND ${CMAKE_COMMAND} --install ${copy} --prefix ${installed} --component
  development RESULT_VARIABLE status ERROR_VARIABLE said
                OUTPUT_QUIET)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
expect_match("${status}, ${said}"
  "^1, .*expected all libraries to be built, for the component development: cmake --build ${copy}")
