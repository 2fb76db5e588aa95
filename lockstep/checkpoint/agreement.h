// How the ranks of a job do one thing to files together: it succeeds on all or fails on all.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

/// Runs `work`, which must not communicate and whose work on files is progress (FileProgress), on every rank, and gives
/// all ranks what it returned on each, in rank order. Where it threw on any, all throw the same Error (checkpoint)
/// naming the first such rank, its host and its reason; a single rank throws its own.
std::vector<std::string> on_every_rank(const allreduce::Communicator& ranks, const std::function<std::string()>& work);

/// What a rank tells the others of the files it wrote.
std::string describe_files(const TrainingState& state, std::span<const FileDigest> files);

/// `descriptions` are describe_files() of all ranks. Throws the same Error (checkpoint) on every rank unless all stand
/// at one step of one training and wrote the same parameters and slots; names the first rank that differs from the
/// chief, the file and the tensor. state.json may differ: what a rank knows of its own devices and paths is not part of
/// the replicas. Collective.
void check_identical(const allreduce::Communicator& ranks, std::span<const std::string> descriptions,
                     const ReplicaArrays& arrays);

}  // namespace lockstep::checkpoint
