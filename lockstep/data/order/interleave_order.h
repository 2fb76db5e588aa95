// The order in which tf.data interleaves several inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::inline v0::data {

/// A cycle has `cycle_length` slots. A *round* visits each slot once, in order. An empty slot opens
/// the next input, if there is one; then the slot yields the next `block_length` elements of its
/// input, or the remaining ones. An input that is found to be exhausted leaves the slot empty until
/// the next round.
///
/// The yield of a round changes only when an input opens or ends. The rounds between two such
/// changes are one *phase*. A phase stores the yield of each slot as a tree of sums. It shares with
/// the preceding phase all of the tree except the paths to slots that changed. Therefore the memory
/// is O(inputs * log(cycle_length)) for any number of elements, and a position is found in
/// O(log(inputs)): the phase, the round by a division, the slot by a walk down the tree.
class InterleaveOrder {
 public:
  struct Position {
    std::size_t input = 0;
    std::int64_t index = 0;  ///< within the input
    bool operator==(const Position&) const = default;
  };

  /// `sizes`: the number of elements of each input, of which there is at least one. `cycle_length`
  /// and `block_length` are at least 1.
  InterleaveOrder(std::span<const std::int64_t> sizes, std::int64_t cycle_length,
                  std::int64_t block_length);

  /// The input and index of the element at `position`, 0 .. sum of sizes - 1. Thread-safe.
  Position operator[](std::int64_t position) const;

 private:
  using NodeId = std::uint32_t;
  /// A node of the tree of sums. The node of a slot has an input instead of children.
  struct Node {
    std::int64_t yield = 0;  // elements per round
    NodeId left = 0;
    NodeId right = 0;  // for a slot: the input
  };
  struct Phase {
    std::int64_t first_position = 0;
    std::int64_t first_round = 0;
    NodeId root = 0;
  };

  NodeId with_slot(NodeId node, std::size_t begin, std::size_t end, std::size_t slot,
                   const Node& leaf);

  std::size_t slots_;
  std::int64_t block_length_;
  std::vector<Node> nodes_ = {{}};         // node 0: slots that yield nothing
  std::vector<std::int64_t> first_round_;  // the round in which each input opens
  std::vector<Phase> phases_;
};

}  // namespace lockstep::inline v0::data
