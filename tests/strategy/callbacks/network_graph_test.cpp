#include "lockstep/train/tensorboard/network_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

/// The parts of a NodeDef that these tests read.
struct SeenNode {
  std::string name;
  std::string operation;
  std::vector<std::string> inputs;
  std::map<std::string, std::string> attributes;  // the bytes of their AttrValue
};

std::vector<SeenNode> nodes_of(const std::string& graph) {
  std::vector<SeenNode> nodes;
  protozero::pbf_reader reader(graph);
  while (reader.next(1)) {
    protozero::pbf_reader node = reader.get_message();
    SeenNode& seen = nodes.emplace_back();
    while (node.next()) {
      if (node.tag() == 1) {
        seen.name = node.get_string();
      } else if (node.tag() == 2) {
        seen.operation = node.get_string();
      } else if (node.tag() == 3) {
        seen.inputs.push_back(node.get_string());
      } else {
        protozero::pbf_reader entry = node.get_message();
        EXPECT_TRUE(entry.next(1));
        const std::string key = entry.get_string();
        EXPECT_TRUE(entry.next(2));
        EXPECT_TRUE(seen.attributes.emplace(key, entry.get_bytes()).second) << key << " twice";
      }
    }
  }
  return nodes;
}

SeenNode node_called(const std::vector<SeenNode>& nodes, const std::string& name) {
  for (const SeenNode& node : nodes)
    if (node.name == name) return node;
  ADD_FAILURE() << "no node " << name;
  return {};
}

/// An AttrValue of text.
std::string text_attribute(const std::string& text) {
  return std::string("\x12") + static_cast<char>(text.size()) + text;
}

TEST(NetworkGraph, HasTheInputsAndLayersWithTheirOptions) {
  model::Network network = plain_network();
  network.freeze(std::vector<std::string>{"dense/*"});
  const std::vector<SeenNode> nodes = nodes_of(network_graph(network));
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].name, "features");
  EXPECT_EQ(nodes[0].operation, "Placeholder");
  EXPECT_EQ(nodes[1].name, "dense");
  EXPECT_EQ(nodes[1].operation, "dense");
  EXPECT_THAT(nodes[1].inputs, ElementsAre("features"));
  EXPECT_EQ(nodes[1].attributes.at("units"), text_attribute("12"));
  EXPECT_EQ(nodes[1].attributes.at("shape of kernel"), text_attribute("[12, 16]"));
  EXPECT_EQ(nodes[1].attributes.at("shape of bias"), text_attribute("[12]"));
  EXPECT_EQ(nodes[1].attributes.at("parameters"), "\x18\xcc\x01") << "17 * 12";
  EXPECT_EQ(nodes[1].attributes.at("trained"), std::string("\x28\0", 2));
  EXPECT_EQ(nodes[3].attributes.at("trained"), "\x28\x01");
  EXPECT_FALSE(nodes[2].attributes.contains("parameters")) << "a ReLU";
  EXPECT_THAT(nodes[3].inputs, ElementsAre(nodes[2].name));
}

TEST(NetworkGraph, HasSeveralInputsAndNamedOutputs) {
  const std::vector<SeenNode> nodes = nodes_of(network_graph(house_network()));
  std::vector<std::string> outputs;
  for (const SeenNode& node : nodes)
    if (const auto output = node.attributes.find("output"); output != node.attributes.end())
      outputs.push_back(output->second);
  EXPECT_THAT(outputs, UnorderedElementsAre(text_attribute("kind"), text_attribute("hidden"),
                                            text_attribute("cost")));
  EXPECT_EQ(node_called(nodes, "table").attributes.at("dtype"), "\x30\x01") << "DT_FLOAT";
  EXPECT_EQ(node_called(nodes, "word").attributes.at("dtype"), "\x30\x03") << "DT_INT32";
  EXPECT_EQ(node_called(nodes, "add").inputs.size(), 2u);
}

TEST(NetworkGraph, RenamesInputsWithTheNameOfALayer) {
  model::Network network({4});
  network.add(model::Dense({.units = 2}), {model::kInput}, "features");
  const std::vector<SeenNode> nodes = nodes_of(network_graph(network));
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].name, "features_input");
  EXPECT_EQ(nodes[1].name, "features");
  EXPECT_THAT(nodes[1].inputs, ElementsAre("features_input"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
