// What replicas keep beside their parameters, made one.
#pragma once

#include <cstdint>
#include <span>

#include "allreduce/communicator.h"

namespace lockstep::strategy {

/// Replaces the flat `buffers` of every replica by their mean over the replicas, weighted by `samples`: the samples
/// that a replica trained on since all replicas last held the same. Nothing changes where nobody trained. Collective
/// over `group`; the same bits on every replica.
///
/// Moving statistics are linear in what they have seen, so with equal parts it does not matter how often they are
/// averaged.
void average_moving_statistics(const allreduce::Communicator& group, std::span<float> buffers, std::int64_t samples);

}  // namespace lockstep::strategy
