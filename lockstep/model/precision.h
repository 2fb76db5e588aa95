// The type of activations and of the weights that products read; parameters, gradients and statistics stay float32.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::model {

class StatisticsExchange;

/// The types that activations may have.
enum class Precision { float32, bfloat16, float16 };

/// Reads "float32", "bfloat16", "float16". Throws Error (input) that lists them.
Precision parse_precision(std::string_view name);
std::string to_string(Precision precision);  ///< the name that parse_precision() knows

/// Bytes of one element.
constexpr std::size_t element_bytes(Precision precision) { return precision == Precision::float32 ? 4 : 2; }

/// Whether a convolution on a GPU, in training in 16 bits, also finds the statistics for the normalization behind it.
/// `where_faster` measures it once for each shape.
enum class FusedStatistics { never, where_faster, where_possible };

/// How a model computes.
struct ComputeOptions {
  Precision precision = Precision::float32;  ///< what was asked for
  bool tf32 = false;  ///< lets a GPU round what it multiplies in float32 to 10 bits; without effect elsewhere
  /// Takes only algorithms that give the same bits in every run, chosen without measurement; the CPU always does.
  bool deterministic = false;
  FusedStatistics fused_statistics = FusedStatistics::where_faster;  ///< never where `deterministic`
  /// Batch normalization in training takes the statistics of all its members; it outlives the model. None: those of the
  /// model's own samples.
  StatisticsExchange* statistics = nullptr;
  /// Called now and then while plans are made, which can take long where algorithms are measured.
  std::function<void()> progress = {};
};

}  // namespace lockstep::model
