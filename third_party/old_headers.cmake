# The paths by which programs for version 1 include the headers that are public now: each forwards, with a warning, in a folder that the
# compiler searches last of all, so that it hides no header of theirs. They go with the next release; so does this file.
cmake_policy(VERSION 3.25)
# Where only the folder changed from X.h to lockstep/X.h, nothing is said here.
set(lockstep_old_headers
  allreduce/device_groups.h lockstep/allreduce/groups.h
  allreduce/watchdog.h lockstep/allreduce/watchdog/watchdog.h
  allreduce/wire_type.h lockstep/allreduce/reduction.h
  data/image/color_jitter.h lockstep/data/image/augmentation.h
  data/image/decode_jpeg.h lockstep/data/image/decode_image.h
  data/image/image_format.h lockstep/data/image/decode_image.h
  data/image/normalization.h lockstep/data/image/recipe.h
  data/image/pixel_sink.h lockstep/data/image/image.h
  data/image/random_crop.h lockstep/data/image/augmentation.h
  data/order/batch_split.h lockstep/data/order/batch_plan.h
  data/order/permutation.h lockstep/data/order/epoch_order.h
  data/order/shard_policy.h lockstep/data/order/batch_plan.h
  data/pipeline/bad_records.h lockstep/data/sample.h
  data/record/atomic_file.h lockstep/base/atomic_file.h
  data/record/damaged_file.h lockstep/data/sample.h
  data/record/example_reader.h lockstep/data/record/example.h
  data/record/input_file.h lockstep/base/input_file.h
  data/record/record_error.h lockstep/data/sample.h
  data/record/tfrecord_reader.h lockstep/data/record/tfrecord.h
  data/record/tfrecord_writer.h lockstep/data/record/tfrecord.h
  data/source/csv_options.h lockstep/data/source/file_options.h
  data/source/tfrecord_options.h lockstep/data/source/file_options.h
  device/cpu.h lockstep/base/system/host.h
  device/error.h lockstep/base/error.h
  device/float16.h lockstep/base/float16.h
  device/log.h lockstep/base/log.h
  device/pixels.h lockstep/base/pixels.h
  device/random.h lockstep/base/random.h
  model/initializer.h lockstep/model/parameters.h
  model/layer.h lockstep/model/layers/layer.h
  model/layers/batch_normalization.h lockstep/model/layers/batch_normalization/batch_normalization.h
  model/layers/conv_2d.h lockstep/model/layers/conv_2d/conv_2d.h
  model/layers/dense.h lockstep/model/layers/dense/dense.h
  model/layers/elementwise.h lockstep/model/layers/elementwise/elementwise.h
  model/layers/pooling.h lockstep/model/layers/pooling/pooling.h
  model/metric.h lockstep/model/loss.h
  model/optimizer_math.h lockstep/model/optimizer_options.h
  model/precision.h lockstep/model/tensor.h
  model/shape.h lockstep/model/tensor.h
  model/statistics_exchange.h lockstep/model/backend.h
  model/zoo/fast_cifar.h lockstep/model/zoo/zoo.h
  model/zoo/resnet.h lockstep/model/zoo/zoo.h
  strategy/checkpoint.h lockstep/checkpoint/checkpoint.h
  strategy/checkpoint_directory.h lockstep/checkpoint/directory.h
  strategy/configuration.h lockstep/checkpoint/training_state.h
  strategy/delayed_termination.h lockstep/job/delayed_termination.h
  strategy/device_share.h lockstep/job/device_share.h
  strategy/failure.h lockstep/job/failure.h
  strategy/files.h lockstep/checkpoint/files.h
  strategy/launcher.h lockstep/job/launcher.h
  strategy/make_strategy.h lockstep/strategy/strategies.h
  strategy/manifest.h lockstep/checkpoint/manifest.h
  strategy/mirrored_strategy.h lockstep/strategy/strategies.h
  strategy/multi_worker_mirrored_strategy.h lockstep/strategy/strategies.h
  strategy/normalization_scope.h lockstep/strategy/replica/normalization.h
  strategy/one_device_strategy.h lockstep/strategy/strategies.h
  strategy/placement.h lockstep/job/placement.h
  strategy/replica_statistics.h lockstep/strategy/replica/replica_statistics.h
  strategy/safetensors.h lockstep/checkpoint/safetensors.h
  strategy/session.h lockstep/job/session.h
  strategy/signals.h lockstep/job/signals.h
  strategy/step_report.h lockstep/strategy/replica/gradient_memory.h
  strategy/summary_writer.h lockstep/strategy/callbacks/summary_writer.h
  strategy/workers.h lockstep/job/workers.h
  strategy/wrapper/distributed_optimizer.h lockstep/interop/distributed_optimizer.h
  strategy/wrapper/gradient_layout.h lockstep/interop/gradient_layout.h
  strategy/wrapper/gradient_math.h lockstep/interop/gradient_math.h
  strategy/wrapper/gradient_reducer.h lockstep/interop/gradient_reducer.h
  strategy/wrapper/parameter_exchange.h lockstep/interop/parameter_exchange.h
  strategy/wrapper/reducer_options.h lockstep/interop/gradient_layout.h
)

# lockstep_write_old_headers(FOLDER HEADER…): writes into FOLDER one for each of the public HEADERs, and those above.
function(lockstep_write_old_headers FOLDER)
  set(pairs ${lockstep_old_headers})
  foreach(header ${ARGN})
    string(REGEX REPLACE "^lockstep/" "" old ${header})
    list(APPEND pairs ${old} ${header})
  endforeach()
  while(pairs)
    list(POP_FRONT pairs old new)
    if(new IN_LIST ARGN)
      file(WRITE ${FOLDER}/${old} "#pragma once\n#warning \"${old} has moved: include <${new}>\"\n#include <${new}>\n")
    endif()
  endwhile()
endfunction()
