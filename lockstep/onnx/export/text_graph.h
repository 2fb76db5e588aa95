// Makes the tokens of a text in the graph, from its characters. Internal to this module: see
// Preprocessing in export.h.
#pragma once

#include <optional>
#include <string>

#include "lockstep/model/network/network.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/export/graph_builder.h"

namespace lockstep::inline v0::onnx {

/// Adds the input "text", int32 [batch, length], and the operators that make of it the inputs
/// `tokens` and `segments` of a network.
class TextGraph {
 public:
  /// Both must outlive it.
  TextGraph(GraphBuilder& graph, const TextCharacters& characters)
      : graph_(graph), characters_(characters) {}

  /// The value of an input of the network, of the same shape; nullopt if it is neither of them.
  std::optional<std::string> value(const model::NetworkInput& input);

 private:
  std::string tokens();

  GraphBuilder& graph_;
  const TextCharacters& characters_;
  std::string text_;     // the input
  std::string present_;  // where it has a character
};

}  // namespace lockstep::inline v0::onnx
