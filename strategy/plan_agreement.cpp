#include "strategy/plan_agreement.h"

#include <fmt/format.h>

#include <span>

#include "device/error.h"
#include "model/shape.h"

namespace lockstep::strategy {

std::string describe_plan(const data::Dataset& dataset) {
  const data::SampleSpec& spec = dataset.spec();
  const std::string labels =
      spec.classes > 0 ? fmt::format("in {} classes", spec.classes) : fmt::format("with {} targets", spec.targets);
  return fmt::format("{} records of {} {}{}, global batch {}", dataset.size(), model::to_string(spec.shape), labels,
                     dataset.preparation(), dataset.global_batch());
}

void check_same_plan(const allreduce::Communicator& ranks, std::string_view mine) {
  const auto all = ranks.all_gather(std::as_bytes(std::span(mine)));
  const auto text = [&](std::size_t rank) {
    return std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (text(rank) != text(0))
      throw Error(ErrorCategory::input, "ranks", "needed the same data and options on all ranks",
                  fmt::format("rank 0 has {}; rank {} has {}", text(0), rank, text(rank)));
}

}  // namespace lockstep::strategy
