// How a model computes: types, choice of algorithms, and activations kept for the backward pass.
#pragma once

#include <cstddef>
#include <functional>

#include "lockstep/base/fields/fields.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

class StatisticsExchange;

/// Whether a convolution on a GPU, in 16-bit training, also computes the statistics for the
/// following normalization. `where_faster` measures this once per shape.
enum class FusedStatistics { never, where_faster, where_possible };

/// The cuDNN interface that computes convolutions on a GPU. `automatic`: the faster one for each
/// shape and pass, measured once.
enum class Convolutions { automatic, graph, legacy };

/// Which activations a training keeps for the backward pass: all, or those between segments of the
/// network, such as the blocks of a transformer. The others are recomputed in the backward pass. On
/// a CPU, and with deterministic algorithms, the results are bit-identical (recomputation.h).
enum class Recompute { none, blocks };

/// How a model computes.
struct ComputeOptions {
  /// Type of activations and of the weights in products; parameters and their gradients are
  /// float32.
  Precision precision = Precision::float32;
  bool tf32 = false;  ///< allows a GPU to round float32 multiplicands to 10 mantissa bits; no
                      ///< effect on other devices
  /// Uses only algorithms that are bit-reproducible, chosen without measurement. Always true on the
  /// CPU.
  bool deterministic = false;
  /// Treated as `never` if `deterministic`.
  FusedStatistics fused_statistics = FusedStatistics::where_faster;
  Convolutions convolutions = Convolutions::automatic;  ///< except those that fuse statistics
  Recompute recompute = Recompute::none;                ///< in training
  /// Maximum bytes of logits that a training pass stores whole. A larger output that only sparse
  /// categorical cross-entropy reads is computed by its Dense or TiedDense, with its loss, in
  /// blocks of about this size. 0: 64 MiB, on a GPU 256 MiB.
  std::size_t logits_bytes = 0;
};

/// Hooks of a model into its replica.
struct ComputeHooks {
  /// The group that synchronizes batch normalization in training; must outlive the model. Null:
  /// each model uses its own samples only.
  StatisticsExchange* statistics = nullptr;
  /// Called repeatedly while plans are created, which is slow if algorithms are measured.
  std::function<void()> progress = {};
};

}  // namespace lockstep::inline v0::model

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<model::FusedStatistics> = enum_names<model::FusedStatistics>(
    {{model::FusedStatistics::never, "never"}, {model::FusedStatistics::where_faster, "measure"}});
template <>
inline constexpr auto kNamesOf<model::Convolutions> =
    enum_names<model::Convolutions>({{model::Convolutions::automatic, "auto"},
                                     {model::Convolutions::graph, "graph"},
                                     {model::Convolutions::legacy, "legacy"}});
template <>
inline constexpr auto kNamesOf<model::Recompute> = enum_names<model::Recompute>(
    {{model::Recompute::none, "none"}, {model::Recompute::blocks, "blocks"}});

/// The options of a model's computation.
template <>
struct Fields<model::ComputeOptions> {
  using Options = model::ComputeOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::precision,
            {"precision", "Model",
             "Data type of the computation: float32, bfloat16 (requires a GPU, or a CPU "
             "with AVX-512) or float16 (requires a GPU). Parameters, gradients and "
             "statistics are float32",
             Role::resume_warn}},
      Field{&Options::tf32,
            {"tf32", "Model",
             "Allow TF32 on GPUs: float32 products round their operands to a 10-bit "
             "mantissa, which is faster"}},
      Field{&Options::deterministic,
            {"deterministic", "Model",
             "Use only bit-reproducible GPU algorithms; the CPU always is bit-reproducible"}},
      Field{&Options::fused_statistics,
            {"fused_statistics", "Model",
             "On GPUs in 16 bits, whether a convolution also sums its output for the "
             "normalization after it: never, or measure (where that is faster; tried once "
             "per shape, and stored)"}},
      Field{&Options::convolutions,
            {"convolutions", "Model",
             "On GPUs, the interface of cuDNN that computes convolutions: graph (its graph "
             "API), legacy, or auto (the faster one for each shape; tried once, and "
             "stored)"}},
      Field{&Options::recompute,
            {"recompute", "Model",
             "Activations to recompute in the backward pass, which saves memory but "
             "takes time: none, or blocks (keep only those between blocks of a "
             "transformer, or parts of another network)"}}};
};

}  // namespace lockstep::inline v0
