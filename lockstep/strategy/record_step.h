// How the work of a step is recorded together with its sums over replicas.
#pragma once

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/gradient_buckets.h"
#include "lockstep/device/stream.h"
#include "lockstep/strategy/step_recordings.h"

namespace lockstep::strategy {

/// Records what `put` puts on `stream` while it is done; the result does it again. Sums of `buckets` over `group` are
/// part of the recording where GPUs alone see to them (Communicator::can_be_recorded); else the recording pauses for
/// them. All arguments but `put` outlive the result. Collective. Throws Error (device) for what cannot be recorded.
StepRecordings::Put record_step(device::Stream& stream, allreduce::GradientBuckets& buckets,
                                const allreduce::Communicator& group, const StepRecordings::Put& put);

}  // namespace lockstep::strategy
