# Public headers: core.h and lockstep.h, those listed here for advanced uses, those of interop/, and
# the headers that they include. All others are internal and are not installed. cmake -P of this
# file prints them, for scripts/docs.
cmake_policy(VERSION 3.25)
set(lockstep_core_header_roots
  lockstep/core.h lockstep/mpi.h
  lockstep/base/system/host.h lockstep/base/trace/events.h
  lockstep/device/device_list.h lockstep/device/gpu.h
  lockstep/job/failure.h lockstep/job/launch/start_monitor.h
  lockstep/job/signal/delayed_termination.h lockstep/job/signal/signal_recording.h)
set(lockstep_header_roots
  lockstep/lockstep.h
  lockstep/data/image/augmentation.h lockstep/data/image/decode_image.h
  lockstep/data/image/encode_png.h lockstep/data/image/resize.h
  lockstep/data/record/example.h lockstep/data/record/mapped_file.h lockstep/data/record/tfrecord.h
  lockstep/data/source/memory_source.h lockstep/data/source/tfrecord/tfrecord_shards.h
  lockstep/onnx/import.h
  lockstep/random/random.h
  lockstep/train/callbacks/json_events.h lockstep/train/callbacks/progress.h
  lockstep/train/callbacks/stragglers.h lockstep/train/tensorboard/summaries.h
  lockstep/strategy/replica/local_replicas.h)

# lockstep_public_headers(SOURCE OUT PARTS [LEFT_OUT …]): their paths, relative to the folder SOURCE
# of the project, for these LOCKSTEP_PARTS, without those that only headers LEFT_OUT include.
function(lockstep_public_headers SOURCE OUT PARTS)
  file(GLOB waiting RELATIVE ${SOURCE} ${SOURCE}/lockstep/interop/*.h)
  list(APPEND waiting ${lockstep_core_header_roots})
  if(NOT PARTS STREQUAL "core")
    list(APPEND waiting ${lockstep_header_roots})
  endif()
  list(REMOVE_ITEM waiting ${ARGN} "")
  set(headers "")
  while(waiting)
    list(POP_FRONT waiting header)
    if(NOT header IN_LIST headers)
      list(APPEND headers ${header})
      file(STRINGS ${SOURCE}/${header} includes REGEX "^ *#include \"")
      list(TRANSFORM includes REPLACE "^ *#include \"([^\"]+)\".*" "\\1")
      list(APPEND waiting ${includes})
    endif()
  endwhile()
  list(SORT headers)
  set(${OUT} ${headers} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  get_filename_component(source ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
  lockstep_public_headers(${source} headers all)
  list(JOIN headers "\n" lines)
  message("${lines}")
endif()
