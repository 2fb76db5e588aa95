#include "lockstep/interop/torch/exchange.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/allreduce/buckets/layout.h"
#include "lockstep/base/error.h"
#include "lockstep/interop/check_together.h"

namespace lockstep::inline v0::torch {
namespace {

std::vector<allreduce::LayoutEntry> describe(const NamedTensors& tensors) {
  std::vector<allreduce::LayoutEntry> entries;
  for (const auto& [name, tensor] : tensors.pairs())
    entries.push_back({fmt::format("{} [{}] {}", name, fmt::join(tensor.sizes().vec(), ", "),
                                   c10::toString(tensor.scalar_type())),
                       static_cast<std::uint64_t>(tensor.numel())});
  return entries;
}

}  // namespace

void broadcast_tensors(job::Workers& workers, const NamedTensors& tensors, int root) {
  workers.wait_pending();
  allreduce::check_layout(workers.group(), describe(tensors));
  const c10::NoGradGuard no_graph;
  for (const auto& [name, tensor] : tensors.pairs()) {
    at::Tensor values = tensor.detach().cpu().contiguous();
    workers.broadcast(std::span(static_cast<std::byte*>(values.data_ptr()), values.nbytes()), root);
    if (!values.is_alias_of(tensor)) tensor.detach().copy_(values);
  }
}

void broadcast_archive(job::Workers& workers, std::string_view where, int root,
                       const std::function<std::string()>& serialize,
                       const std::function<void(const std::string&)>& deserialize) {
  const auto together = [&](const auto& work) {
    interop::check_together(workers, where, [&] {
      try {
        work();
      } catch (const c10::Error& error) {
        throw Error(ErrorCategory::input, where,
                    "expected an object that LibTorch can save and load",
                    error.what_without_backtrace());
      }
      return std::string();
    });
  };
  std::string bytes;
  together([&] {
    if (workers.rank() == root) bytes = serialize();
  });
  auto size = static_cast<std::uint64_t>(bytes.size());
  workers.broadcast(std::span(&size, 1), root);
  bytes.resize(size);
  workers.broadcast(std::span(bytes), root);
  together([&] {
    if (workers.rank() != root) deserialize(bytes);
  });
}

}  // namespace lockstep::inline v0::torch
