// Post-training quantization: from a trained network to one whose convolutions and dense layers
// compute with 8-bit integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/data/dataset.h"
#include "lockstep/model/network/fold_normalizations.h"
#include "lockstep/onnx/export/activation_range.h"

namespace lockstep::inline v0::onnx {

/// Minimum number of samples for the calibration of quantize().
inline constexpr std::int64_t kMinCalibrationSamples = 16;

/// How a network is quantized.
struct QuantizeOptions {
  Calibration calibration = Calibration::min_max;  ///< how the ranges of activations are chosen
  std::int64_t samples = 512;                      ///< maximum number of calibration samples
  /// Globs over names of layers to keep in float32.
  std::vector<std::string> keep_float = {};
  /// Bits of the weights: 8, or 7 for runtimes that add two products with uint8 in 16 bits, as
  /// onnxruntime does on x86 processors without VNNI: 2 * 255 * 63 fits, 2 * 255 * 127 does not.
  int weight_bits = 8;
  double max_drop = 0.5;  ///< maximum loss of quality, in the unit of MeasureDrop
  int threads = 1;        ///< number of threads that read samples
};

/// Returns the loss of quality of `network` compared with the network in float32, such as points of
/// accuracy; below 0 if it is better.
using MeasureDrop = std::function<double(const model::FoldedNetwork& network)>;

/// A convolution or a dense layer of a quantized network.
struct QuantizedLayer {
  std::string name;                     ///< name of the layer
  std::string type;                     ///< type in descriptions, such as "conv2d"
  bool is_int8 = false;                 ///< otherwise it computes with float32
  std::string kept_by = {};             ///< the option that keeps it in float32: "keep-float"
  ActivationRange input = {};           ///< range that the integers represent
  std::optional<double> decibels = {};  ///< see quantize(); none: not measured, or exact
};

/// The result of quantize().
struct QuantizedModel {
  /// Has fake_quantize layers and weights rounded to int8, and computes the same as the graph that
  /// export_network() writes with `int8_layers`.
  model::FoldedNetwork network;
  std::set<std::string, std::less<>> int8_layers = {};  ///< ExportOptions::int8_layers
  std::vector<QuantizedLayer> layers = {};              ///< in the order of the network
  double drop = 0;                                      ///< its result of MeasureDrop
  std::size_t call = 0;      ///< index of the MeasureDrop call for this network
  std::int64_t samples = 0;  ///< number of samples of the calibration
};

/// Quantizes `original` without training (Jacob et al., "Quantization and training of neural
/// networks for efficient integer-arithmetic-only inference", CVPR 2018): weights are symmetric
/// int8 with a scale for each output channel, activations uint8 with a range for each value, chosen
/// from the activations for samples of `calibration` on a CPU; labels are ignored. RoundingPlan
/// selects the values to round.
///
/// `decibels` is the signal-to-noise ratio of the outputs, for up to 32 samples, with one layer
/// alone in int8. If `measure_drop` exceeds `max_drop` with all layers in int8, the smallest
/// sufficient number of layers with the lowest ratios is kept in float32, found in a logarithmic
/// number of calls. The result is a pure function of the data.
///
/// Throws Error (input) for other numbers of bits, if no layer can be int8, if a pattern matches
/// none, or if `max_drop` cannot be met; Error (data) for too few samples, and for values that are
/// not finite.
QuantizedModel quantize(const model::FoldedNetwork& original, const data::Dataset& calibration,
                        const MeasureDrop& measure_drop, const QuantizeOptions& options = {});

}  // namespace lockstep::inline v0::onnx

namespace lockstep::inline v0 {

/// The options of quantization.
template <>
struct Fields<onnx::QuantizeOptions> {
  using Options = onnx::QuantizeOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::calibration,
            {"calibration", "Quantization",
             "How the range of an activation follows from the samples of --data: min-max (all "
             "values), percentile (without the lowest and the highest 0.01%), or entropy (the "
             "least Kullback-Leibler divergence)"}},
      Field{&Options::samples,
            {"samples", "Quantization",
             "Number of samples to calibrate with, drawn from all of --data"},
            {.min = onnx::kMinCalibrationSamples}},
      Field{&Options::weight_bits,
            {"weight_bits", "Quantization",
             "Bits of the integers of weights: 8, or 7 for x86 processors without VNNI, on which "
             "onnxruntime adds two products in 16 bits"},
            {.min = 7, .max = 8},
            {.value = "7|8"}},
      Field{&Options::max_drop,
            {"max_drop", "Quantization",
             "What int8 may lose on the validation data: points of accuracy, or without classes "
             "percent of the loss. Layers with the most noise are kept in float32 until it holds"},
            {.min = 0}},
      Field{&Options::keep_float,
            {"keep_float", "Quantization",
             "Layers to keep in float32: patterns of names, such as 'conv1' or 'block4_*'. "
             "May be given several times (default: none)"},
            {},
            {.value = "PATTERN", .repeats = true}}};
};

}  // namespace lockstep::inline v0
