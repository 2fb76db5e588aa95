// Exports a network with its weights to ONNX.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/model/network/network.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// The flat arrays of a network, in the layout of its tables.
struct NetworkArrays {
  std::span<const float> parameters;  ///< Network::parameters()
  std::span<const float> buffers;     ///< Network::buffers()
};

/// What a text consists of. ONNX has no operator that splits a string, so a graph reads numbers.
struct TextCharacters {
  /// The code points whose tokens are 0, 1, …; empty: bytes, each of which is its token.
  std::vector<std::int32_t> codes = {};
};

/// Operators that the graph applies to its inputs before the network.
struct Preprocessing {
  /// The first float input is uint8 pixels: they are divided by 255 and normalized.
  std::optional<ChannelNormalization> pixels = {};
  /// The first float input, and indices, are computed from the columns of a table with this schema.
  /// The graph has an input of float32 [batch, columns] in place of the former, with
  /// number_columns(); NaN is missing. A column of words is a string [batch], one of dates an int64
  /// [batch], the seconds since 1970-01-01 (the least int64 is missing), each with its name. In
  /// float32, scaled numbers are within 3e-7 of the quotient of doubles.
  std::shared_ptr<const data::TableSchema> table = {};
  /// The inputs `tokens` and `segments` are computed from an input "text", int32 [batch, length]:
  /// the bytes or the code points of a text, and -1 after its end.
  std::optional<TextCharacters> text = {};
};

/// The columns of the float input of a graph that reads a table, in order: those of numeric and
/// bucketized features, each once.
std::vector<std::string> number_columns(const data::TableSchema& table);

/// How arrays of weights are stored.
enum class WeightStorage {
  float32,  ///< as they are
  float16,  ///< arrays of several axes and at least 128 elements as float16,
            ///< with a Cast to float32
};

/// How a network is exported.
struct ExportOptions {
  /// Whether the graph is for inference only: batch normalizations are folded into the convolutions
  /// and dense layers before them, and dropouts are omitted.
  bool fold = true;
  /// Storage of the arrays that are not int8 or int32.
  WeightStorage weights = WeightStorage::float32;
  /// Names of layers whose kernel is stored as int8, with a scale for each output channel, and
  /// whose bias is stored as int32 (int8_layers.h). Their inputs are fake_quantize layers.
  std::set<std::string, std::less<>> int8_layers = {};
  int weight_bits = 8;  ///< bits of those kernels, see QuantizeOptions::weight_bits
  Preprocessing preprocessing = {};
  /// Whether segments are 1 for one text, then 0 for padding; recurrent layers require that.
  bool one_document = false;
  std::string producer_version = {};                 ///< version of Lockstep
  std::map<std::string, std::string> metadata = {};  ///< metadata of the model
};

/// The network in inference as a graph of IR version 8 and opset 17, with a free first axis,
/// "batch".
///
/// Inputs and outputs keep their names. Those with three axes [H, W, C] are [batch, C, H, W]; all
/// others have Lockstep's order. Images are channels first inside, too: the constants are
/// transposed. Weights have their name in the network ("conv1/kernel"), with a suffix if they are
/// stored as another type ("conv1/kernel/int8"); operators have the name of their layer. A
/// fake_quantize is a QuantizeLinear and a DequantizeLinear, which runtimes fuse with the int8
/// layers between them (QDQ). Batch normalizations use the moving statistics; dropouts are omitted.
///
/// Throws Error (input) `[LAYER (TYPE)] expected …, got …` for a layer without operators
/// (user-defined, TorchScript, or recurrent with segments of several documents); for preprocessing
/// without a matching input, or with a feature that standard operators do not compute (hashed,
/// crossed, of several words, or of a window); for weights that float16 cannot hold; and for
/// `int8_layers` that why_not_int8() (int8_layers.h) rejects, or with weights that are not finite.
Model export_network(const model::Network& network, const NetworkArrays& arrays,
                     const ExportOptions& options = {});

}  // namespace lockstep::inline v0::onnx

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<onnx::WeightStorage> = enum_names<onnx::WeightStorage>(
    {{onnx::WeightStorage::float32, "float32"}, {onnx::WeightStorage::float16, "float16"}});

}  // namespace lockstep::inline v0
