#include "lockstep/model/cuda/updater.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/optimizer/optimizer.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// Number of elements that one thread block sums for a norm.
constexpr std::size_t kChunkElements = std::size_t{1} << 16;

// The layout of the flat arrays for layer-wise optimizers, built on the host.
struct LayerTable {
  std::vector<Chunk> chunks;
  std::vector<std::uint32_t> first_chunks;  // per parameter, and the end
  std::vector<std::uint32_t> parameter_of;  // per flat block

  explicit LayerTable(const ParameterTable& table) {
    const auto& entries = table.entries();
    for (std::size_t p = 0; p < entries.size(); ++p) {
      first_chunks.push_back(static_cast<std::uint32_t>(chunks.size()));
      for (std::size_t begin = 0; begin < entries[p].count; begin += kChunkElements)
        chunks.push_back({.parameter = static_cast<std::uint32_t>(p),
                          .elements = static_cast<std::uint32_t>(
                              std::min(kChunkElements, entries[p].count - begin)),
                          .begin = entries[p].offset + begin});
      const std::size_t end = p + 1 < entries.size() ? entries[p + 1].offset : table.flat_size();
      parameter_of.insert(parameter_of.end(), (end - entries[p].offset) / kFlatBlock,
                          static_cast<std::uint32_t>(p));
    }
    first_chunks.push_back(static_cast<std::uint32_t>(chunks.size()));
  }
};

// The distinct groups of the parameters.
std::vector<UpdateGroup> groups_of(const ParameterTable& table) {
  std::vector<UpdateGroup> groups;
  for (const ParameterInfo& entry : table.entries())
    if (std::ranges::count(groups, entry.group()) == 0) groups.push_back(entry.group());
  if (groups.size() > kMaxGroups)
    throw Error(ErrorCategory::input, "group",
                fmt::format("expected parameters of at most {} kinds of learning rate and decay on "
                            "a GPU",
                            kMaxGroups),
                fmt::format("got {}", groups.size()));
  return groups;
}

std::vector<std::uint8_t> groups_of_blocks(const ParameterTable& table,
                                           std::span<const UpdateGroup> groups) {
  std::vector<std::uint8_t> indices;
  const auto& entries = table.entries();
  for (std::size_t p = 0; p < entries.size(); ++p) {
    const std::size_t end = p + 1 < entries.size() ? entries[p + 1].offset : table.flat_size();
    const auto group = std::ranges::find(groups, entries[p].group()) - groups.begin();
    indices.insert(indices.end(), (end - entries[p].offset) / kFlatBlock,
                   static_cast<std::uint8_t>(group));
  }
  return indices;
}

template <typename Update>
class GpuUpdater final : public Updater {
 public:
  GpuUpdater(Context& context, const OptimizerOptions& options, const ParameterTable& table,
             const UpdateArrays& arrays)
      : Updater(options, arrays.average_decay),
        context_(context),
        arrays_(arrays),
        staged_(context),
        partials_(
            context.allocator().allocate(square_sum_parts(table.flat_size()) * sizeof(double))),
        decision_(context.allocator().allocate(sizeof(Decision))),
        fetched_decision_(device::make_pinned_allocator()->allocate(sizeof(Decision))),
        groups_(groups_of(table)),
        groups_of_blocks_(upload(groups_of_blocks(table, groups_))) {
    check_options(options);
    for (std::size_t i = 0; i < slot_names().size(); ++i)
      slots_.push_back(context.allocator().allocate(table.flat_size() * sizeof(float)));
    if (!LayerWise<Update>) return;
    const LayerTable layers(table);
    chunks_ = upload(layers.chunks);
    first_chunks_ = upload(layers.first_chunks);
    parameter_of_ = upload(layers.parameter_of);
    chunk_partials_ = context.allocator().allocate(2 * layers.chunks.size() * sizeof(double));
    rates_ = context.allocator().allocate(table.entries().size() * sizeof(float));
    layers_ = {.chunks = chunks_.template as<Chunk>().data(),
               .chunk_count = static_cast<std::uint32_t>(layers.chunks.size()),
               .first_chunks = first_chunks_.template as<std::uint32_t>().data(),
               .parameters = static_cast<std::uint32_t>(table.entries().size()),
               .parameter_of = parameter_of_.template as<std::uint32_t>().data(),
               .partials = chunk_partials_.template as<double>().data(),
               .rates = rates_.template as<float>().data()};
  }

  void begin(const UpdateRequest& request) override {
    StepNumbers step{};
    for (std::size_t i = 0; i < groups_.size(); ++i)
      step.groups[i] = std::get<Update>(
          update_of(options(), {.learning_rate = request.learning_rate * groups_[i].rate_factor,
                                .step = request.update,
                                .decays = groups_[i].decay,
                                .weight_decay = groups_[i].weight_decay}));
    step.decision = {.clip_norm = request.clip_norm,
                     .loss_scale = request.loss_scale,
                     .average_decay = average_decay(request.update)};
    staged_.set(step);
  }

  void update(std::span<const float> summable) override {
    const cudaStream_t stream = context_.native();
    auto* const decision = decision_.as<Decision>().data();
    double* const partials = partials_.as<double>().data();
    square_sums(arrays_.gradients.data(), arrays_.gradients.size(), partials, stream);
    decide(summable.data(), partials, square_sum_parts(arrays_.gradients.size()),
           &staged_.data()->decision, decision, stream);
    descend(flat_arrays(), layers_, &staged_.data()->groups, decision, context_.multiprocessors(),
            stream);
    restore_unless_applied(decision, arrays_.kept_statistics.data(), arrays_.statistics.data(),
                           arrays_.statistics.size(), stream);
    device::copy(fetched_decision_.data(), decision, sizeof(Decision), context_.stream());
  }

  UpdateOutcome outcome() override {
    const Decision made = fetched_decision_.as<Decision>().front();
    return {.applied = made.applied != 0, .gradient_norm = made.norm};
  }

 private:
  // The values set by begin().
  struct StepNumbers {
    Numbers<Update> groups;
    DecisionNumbers decision;
  };

  std::span<float> slot(std::size_t index) override { return slots_[index].template as<float>(); }

  template <typename T>
  device::Buffer upload(const std::vector<T>& values) {
    device::Buffer buffer = context_.allocator().allocate(values.size() * sizeof(T));
    device::copy(buffer.data(), values.data(), values.size() * sizeof(T), context_.stream());
    context_.stream().synchronize();
    return buffer;
  }

  FlatArrays flat_arrays() const {
    const std::size_t kept = Update::kSlots.size();  // those of the optimizer; the average follows
    const auto slot_at = [&](std::size_t index, bool exists) {
      return exists ? slots_[index].template as<float>().data() : nullptr;
    };
    return {.parameters = arrays_.parameters.data(),
            .gradients = arrays_.gradients.data(),
            .first = slot_at(0, kept > 0),
            .second = slot_at(1, kept > 1),
            .average = slot_at(kept, averages()),
            .weights = arrays_.weights,
            .count = arrays_.parameters.size(),
            .groups = groups_of_blocks_.as<std::uint8_t>().data()};
  }

  Context& context_;
  UpdateArrays arrays_;
  StagedValue<StepNumbers> staged_;
  device::Buffer partials_;
  device::Buffer decision_;
  device::Buffer fetched_decision_;  // page-locked
  std::vector<UpdateGroup> groups_;
  device::Buffer groups_of_blocks_;
  std::vector<device::Buffer> slots_;
  device::Buffer chunks_;
  device::Buffer first_chunks_;
  device::Buffer parameter_of_;
  device::Buffer chunk_partials_;
  device::Buffer rates_;
  Layers layers_;
};

}  // namespace

std::unique_ptr<Updater> make_updater(Context& context, const OptimizerOptions& options,
                                      const ParameterTable& table, const UpdateArrays& arrays) {
  check_runs_on_gpu(options);
  return std::visit(
      [&]<typename Update>(const Update&) -> std::unique_ptr<Updater> {
        return std::make_unique<GpuUpdater<Update>>(context, options, table, arrays);
      },
      update_of(options, {}));
}

}  // namespace lockstep::inline v0::model::cuda
