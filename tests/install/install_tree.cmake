# Runs cmake --install into a separate folder, which the other tests use, and checks the result.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)
file(REMOVE_RECURSE ${WORK})
output_of(said ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
# The shell commands that it prints make the installed programs available.
string(REGEX MATCHALL "export [A-Z_]+=[^\n]+" lines "${said}")
list(LENGTH lines count)
if(NOT count EQUAL 4)
  message(FATAL_ERROR "expected 4 lines for the shell, got ${lines}")
endif()
list(JOIN lines "\n" lines)
output_of(found env -u LD_LIBRARY_PATH sh -c "${lines}
command -v lockstep
${PKG_CONFIG} --variable=pcfiledir lockstep
echo $CMAKE_PREFIX_PATH
echo $LD_LIBRARY_PATH")
expect_match("${found}"
  "^${prefix}/bin/lockstep\n${prefix}/${LIBDIR}/pkgconfig\n${prefix}[^\n]*\n${prefix}/${LIBDIR}$")
# Packagers install below another root, where these commands would be wrong.
output_of(said ${CMAKE_COMMAND} -E env DESTDIR=${WORK}/root ${CMAKE_COMMAND} --install ${BUILD}
  --prefix /opt/lockstep)
file(REMOVE_RECURSE ${WORK}/root)
if(said MATCHES "export ")
  message(FATAL_ERROR "printed lines for the shell:\n${said}")
endif()
# Libraries that are loaded on first use must not be link dependencies.
file(GLOB files ${prefix}/${LIBDIR}/cmake/lockstep/*targets*.cmake
  ${prefix}/${LIBDIR}/pkgconfig/lockstep.pc)
list(LENGTH files count)
if(count LESS 5)
  message(FATAL_ERROR "expected the targets of two libraries and lockstep.pc, got ${files}")
endif()
foreach(file ${files})
  file(STRINGS ${file} asked_for REGEX "cudnn|cublas|nccl|${BUILD}")
  if(asked_for)
    message(FATAL_ERROR "${file} requires ${asked_for}")
  endif()
endforeach()
foreach(internal model/cuda allreduce/transport allreduce/algorithm model/plan.h)
  if(EXISTS ${prefix}/include/lockstep/${internal})
    message(FATAL_ERROR "${internal} is internal, but was installed")
  endif()
endforeach()
output_of(program ${prefix}/bin/lockstep --version)
output_of(library ${PKG_CONFIG} --modversion ${prefix}/${LIBDIR}/pkgconfig/lockstep.pc)
expect_match("${program}" "^lockstep ${library}$")
if(TORCH)
  expect_plugin(${prefix}/bin/lockstep ${WORK})
endif()
