#include "lockstep/model/layers/attention/cudnn_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/model/cuda/trial_timer.h"

namespace lockstep::inline v0::model::cuda {
namespace {

constexpr std::int64_t kMaxWidth = 128;  // per head, in both passes
constexpr std::int64_t kWidthStep = 8;   // aligns heads to 16 bytes
constexpr std::size_t kFirstVersion =
    91000;  // supports -infinity as mask, and sums not zeroed before

std::string text_of(const AttentionSpec& spec) {
  const std::string shared = spec.key_value_heads == spec.heads
                                 ? ""
                                 : fmt::format(" ({} of keys and values)", spec.key_value_heads);
  return fmt::format("{}attention of {} queries to {} keys, {} heads{} of {} elements",
                     spec.causal ? "causal " : "", spec.queries, spec.keys, spec.heads, shared,
                     spec.width);
}

void* place_of(const TensorView& view, const AttentionSpec& spec, std::size_t which) {
  if (view.empty()) return nullptr;
  return static_cast<std::byte*>(view.data()) +
         static_cast<std::size_t>(spec.part(which).offset) * element_bytes(view.type());
}

}  // namespace

// A plan refers to its graph and configuration.
struct CudnnAttention::Planned {
  AttentionGraph graph;
  std::vector<GraphDescriptor> configurations;
  std::optional<GraphPlan> plan;
};

std::shared_ptr<const CudnnAttention::Planned> CudnnAttention::plan(Context& context,
                                                                    const AttentionSpec& spec,
                                                                    AttentionPass pass) {
  const std::string name = fmt::format("{} {}{} of {} samples{} by cuDNN",
                                       pass == AttentionPass::forward ? "forward" : "backward",
                                       text_of(spec), spec.packed ? " in one array" : "",
                                       spec.batch, spec.training ? " in training" : "");
  std::shared_ptr<const void>& cached = context.shared(name);
  if (cached == nullptr) {
    context.made_progress();
    auto created = std::make_shared<Planned>(
        Planned{AttentionGraph(context.cudnn(), context.cudnn_type(), spec, pass), {}, {}});
    created->configurations = usable_configurations(created->graph.whole(), {.may_compile = true});
    for (const GraphDescriptor& configuration : created->configurations) {
      context.made_progress();
      created->plan = GraphPlan::create(context.cudnn(), configuration);
      if (created->plan && created->plan->workspace_bytes() <= kMaxWorkspace) break;
      created->plan.reset();
    }
    cached = std::move(created);
  }
  auto planned = std::static_pointer_cast<const Planned>(cached);
  return planned->plan ? planned : nullptr;
}

std::unique_ptr<CudnnAttention> CudnnAttention::create(Context& context,
                                                       const AttentionSpec& spec) {
  auto forward = plan(context, spec, AttentionPass::forward);
  if (forward == nullptr) return nullptr;
  std::shared_ptr<const Planned> backward;
  if (spec.training) {
    backward = plan(context, spec, AttentionPass::backward);
    if (backward == nullptr) return nullptr;
  }
  return std::unique_ptr<CudnnAttention>(
      new CudnnAttention(context, spec, std::move(forward), std::move(backward)));
}

CudnnAttention::CudnnAttention(Context& context, const AttentionSpec& spec,
                               std::shared_ptr<const Planned> forward,
                               std::shared_ptr<const Planned> backward)
    : context_(context),
      spec_(spec),
      forward_(std::move(forward)),
      backward_(std::move(backward)),
      forward_plan_(forward_->plan->shared()),
      scale_(spec.scale),
      hidden_(-std::numeric_limits<float>::infinity()) {
  std::size_t workspace = forward_plan_.workspace_bytes();
  if (backward_ != nullptr) {
    backward_plan_.emplace(backward_->plan->shared());
    workspace = std::max(workspace, backward_plan_->workspace_bytes());
  }
  workspace_at_ = scratch_.add(workspace);
  products_at_ = scratch_.add(spec.saved_bytes());
  query_sums_at_ = scratch_.add(spec.saved_bytes() * static_cast<std::size_t>(spec.width));
}

void CudnnAttention::forward(const AttentionArrays& arrays, std::span<std::byte> scratch) {
  run(forward_plan_, *forward_, arrays, scratch);
}

void CudnnAttention::backward(const AttentionArrays& arrays, std::span<std::byte> scratch) {
  run(*backward_plan_, *backward_, arrays, scratch);
}

void CudnnAttention::run(GraphPlan& plan, const Planned& planned, const AttentionArrays& arrays,
                         std::span<std::byte> scratch) {
  std::array<void*, AttentionGraph::kFirstVirtual> places{};
  places[AttentionGraph::kQueries] = place_of(arrays.inputs[0], spec_, 0);
  places[AttentionGraph::kKeys] = place_of(arrays.inputs[1], spec_, 1);
  places[AttentionGraph::kValues] = place_of(arrays.inputs[2], spec_, 2);
  places[AttentionGraph::kOutput] = arrays.output.data();
  places[AttentionGraph::kDivisors] = arrays.divisors;
  places[AttentionGraph::kScale] = &scale_;
  places[AttentionGraph::kHidden] = &hidden_;
  places[AttentionGraph::kOutputGradient] = arrays.output_gradient.data();
  places[AttentionGraph::kOne] = &one_;
  places[AttentionGraph::kQueryGradient] = place_of(arrays.gradients[0], spec_, 0);
  places[AttentionGraph::kKeyGradient] = place_of(arrays.gradients[1], spec_, 1);
  places[AttentionGraph::kValueGradient] = place_of(arrays.gradients[2], spec_, 2);
  places[AttentionGraph::kProducts] = part_of(scratch, products_at_);
  places[AttentionGraph::kQuerySums] = part_of(scratch, query_sums_at_);
  std::array<void*, AttentionGraph::kFirstVirtual> used{};
  const std::vector<std::int64_t>& ids = planned.graph.ids();
  for (std::size_t i = 0; i < ids.size(); ++i) used[i] = places[static_cast<std::size_t>(ids[i])];
  plan.run(context_.cudnn(), ids, std::span<void* const>(used).first(ids.size()),
           part_of(scratch, workspace_at_));
}

std::string reason_for_own_kernels(const ComputeOptions& options, const AttentionSpec& spec) {
  if (options.precision == Precision::float32) return "it is in float32";
  if (options.deterministic) return "--deterministic requires the same bits in every run";
  if (spec.segments) return "it has segments";
  if (spec.rotary > 0) return "it rotates queries and keys";
  if (spec.width % kWidthStep != 0 || spec.width > kMaxWidth)
    return fmt::format("cuDNN needs heads of up to {} elements, a multiple of {}", kMaxWidth,
                       kWidthStep);
  return "";
}

std::unique_ptr<CudnnAttention> choose_attention(Context& context, const AttentionSpec& spec) {
  std::string reason = reason_for_own_kernels(context.options(), spec);
  std::unique_ptr<CudnnAttention> chosen;
  if (reason.empty()) {
    const std::size_t version = cudnnGetVersion();
    if (version < kFirstVersion)
      reason = fmt::format("cuDNN is {}, older than {}", version, kFirstVersion);
    else if (!succeeds([&] { return (chosen = CudnnAttention::create(context, spec)) != nullptr; }))
      reason = fmt::format("cuDNN {} has no engine for it", version);
  }
  context.note(fmt::format("{} by {}", text_of(spec),
                           chosen != nullptr ? "cuDNN" : fmt::format("own kernels: {}", reason)));
  return chosen;
}

}  // namespace lockstep::inline v0::model::cuda
