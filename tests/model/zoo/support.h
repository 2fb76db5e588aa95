// Inputs of the zoo's networks, and helpers for tests of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/model/network/network.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"

namespace lockstep::inline v0::zoo {

inline const DataInput kTable[] = {
    {{.name = "features", .shape = {5}}},
    {{.name = "city", .shape = {}, .type = ElementType::int32}, 100},
    {{.name = "city x color", .shape = {}, .type = ElementType::int32}, 1000}};

inline const DataInput kPair[] = {
    {{.name = "source", .shape = {7}, .type = ElementType::int32}, 20},
    {{.name = "source_segments", .shape = {7}, .type = ElementType::int32}, 0},
    {{.name = "tokens", .shape = {5}, .type = ElementType::int32}, 22}};

inline const DataInput kTokens[] = {
    {{.name = "tokens", .shape = {8}, .type = ElementType::int32}, 65},
    {{.name = "segments", .shape = {8}, .type = ElementType::int32}, 0}};

inline const DataInput kCaptions[] = {
    {{.name = "image", .shape = {32, 32, 3}}},
    {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 20}};

/// Expects that make() rejects each name with a message that contains its text.
inline void expect_refusals(std::span<const DataInput> inputs,
                            const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [name, message] : cases)
    EXPECT_THAT(model::input_error_of([&, &name = name] { make(name, inputs, 3); }),
                ::testing::HasSubstr(message))
        << name;
}

/// The name of the network without its head.
inline std::string features_name(const std::string& name) {
  return name + (name.find(':') == std::string::npos ? ":features" : ",features");
}

/// The output shape of the layer; [] if the network has none of this name.
inline model::Shape shape_of(const model::Network& network, std::string_view layer) {
  const auto found = std::ranges::find(network.nodes(), layer, &model::Node::name);
  return found == network.nodes().end() ? model::Shape{} : found->output_shape;
}

}  // namespace lockstep::inline v0::zoo
