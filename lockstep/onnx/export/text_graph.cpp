#include "lockstep/onnx/export/text_graph.h"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::inline v0::onnx {
namespace {

std::string number(GraphBuilder& graph, std::string_view name, std::int32_t value) {
  return graph.tensor({.name = graph.unique_name(name),
                       .type = TensorType::int32,
                       .shape = {},
                       .bytes = bytes_of(std::span<const std::int32_t>(&value, 1))});
}

Attribute to_int32() { return {"to", static_cast<std::int64_t>(TensorType::int32)}; }

}  // namespace

std::optional<std::string> TextGraph::value(const model::NetworkInput& input) {
  const bool is_tokens = input.name == "tokens";
  if ((!is_tokens && input.name != "segments") || input.type != ElementType::int32 ||
      input.shape.size() != 1)
    return std::nullopt;
  if (text_.empty()) {
    text_ = graph_.unique_name("text");
    graph_.graph.inputs.push_back({.name = text_,
                                   .type = TensorType::int32,
                                   .shape = {Extent("batch"), Extent(input.shape.front())}});
    present_ =
        graph_.add("GreaterOrEqual", {text_, number(graph_, "text/first", 0)}, "text/present");
  }
  return is_tokens ? tokens() : graph_.add("Cast", {present_}, input.name, {to_int32()});
}

// A character without a token gets a number that no token has, with which runtimes fail, as predict
// does, instead of computing something else.
std::string TextGraph::tokens() {
  const std::string padding = number(graph_, "text/padding", 0);
  if (characters_.codes.empty()) return graph_.add("Where", {present_, text_, padding}, "tokens");
  const std::string codes =
      graph_.tensor({.name = graph_.unique_name("text/vocabulary"),
                     .type = TensorType::int32,
                     .shape = {static_cast<std::int64_t>(characters_.codes.size())},
                     .bytes = bytes_of(std::span(characters_.codes))});
  const std::string last = graph_.integers({-1});
  const std::string is_code = graph_.add(
      "Cast",
      {graph_.add("Equal", {graph_.add("Unsqueeze", {text_, last}, "text/column"), codes},
                  "text/equal")},
      "text/matches", {to_int32()});
  const std::string position =
      graph_.add("Cast",
                 {graph_.add("ArgMax", {is_code}, "text/position",
                             {{"axis", std::int64_t{-1}}, {"keepdims", std::int64_t{0}}})},
                 "text/number", {to_int32()});
  const std::string is_known = graph_.add(
      "Cast",
      {graph_.add("ReduceMax", {is_code}, "text/known",
                  {{"axes", std::vector<std::int64_t>{-1}}, {"keepdims", std::int64_t{0}}})},
      "text/is_known", {{"to", static_cast<std::int64_t>(TensorType::boolean)}});
  const std::string found = graph_.add(
      "Where",
      {is_known, position,
       number(graph_, "text/unknown", static_cast<std::int32_t>(characters_.codes.size()))},
      "text/found");
  return graph_.add("Where", {present_, found, padding}, "tokens");
}

}  // namespace lockstep::inline v0::onnx
