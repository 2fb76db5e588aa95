// File operations by all ranks together: they succeed on all ranks or fail on all ranks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::inline v0::checkpoint {

/// Runs `work` on every rank and returns the results of all ranks, in rank order. `work` must not
/// communicate; its file operations count as progress (FileProgress). If it throws on any rank, all
/// ranks throw the same Error (checkpoint) with the first such rank, its host and its reason; a
/// single rank throws its own exception.
std::vector<std::string> on_every_rank(const allreduce::Communicator& ranks,
                                       const std::function<std::string()>& work);

/// Broadcasts the contents of a checkpoint file, which only the chief has read, to all ranks; null
/// stays null. Collective.
void broadcast_file(const allreduce::Communicator& ranks,
                    std::shared_ptr<const std::string>& content);

/// Describes the files that a rank wrote, for check_identical().
std::string describe_files(const TrainingState& state, std::span<const FileDigest> files);

/// `descriptions` are describe_files() of all ranks. Throws the same Error (checkpoint) on every
/// rank unless all are at the same step of the same training and wrote the same parameters and
/// slots. The error names the first rank that differs from the chief, the file and the tensor.
/// state.json may differ, because the devices and paths of a rank are not part of its replica. Only
/// the chief writes a tokenizer and a TorchScript file. Collective.
void check_identical(const allreduce::Communicator& ranks,
                     std::span<const std::string> descriptions, const ReplicaArrays& arrays);

}  // namespace lockstep::inline v0::checkpoint
