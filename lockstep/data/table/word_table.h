// Numbers of words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0::data {

/// Numbers different words from 0, in the order in which they are added. A hash table with open
/// addressing: looking up a word of a table takes a few nanoseconds.
class WordTable {
 public:
  /// The number of `word`; -1 if it has not been added.
  std::int32_t find(std::string_view word) const {
    return slots_.empty() ? -1 : slots_[slot_of(word)].number;
  }

  /// The number of `word`, which is new if find() returned -1.
  std::int32_t add(std::string_view word) {
    if (2 * (words_.size() + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(word)];
    if (slot.number < 0) {
      slot = {tag_of(word), static_cast<std::int32_t>(words_.size())};
      words_.emplace_back(word);
    }
    return slot.number;
  }

  std::size_t size() const { return words_.size(); }
  /// The words by number.
  const std::vector<std::string>& words() const { return words_; }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::int32_t number = -1;
  };

  static std::size_t hash_of(std::string_view word) { return std::hash<std::string_view>{}(word); }
  static std::uint32_t tag_of(std::string_view word) {
    return static_cast<std::uint32_t>(hash_of(word) >> 32);
  }

  /// The slot of the word, or the free slot for it.
  std::size_t slot_of(std::string_view word) const {
    const std::size_t hash = hash_of(word);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.number < 0) return i;
      if (slot.tag == tag && words_[static_cast<std::size_t>(slot.number)] == word) return i;
    }
  }

  void grow() {
    slots_.assign(std::max<std::size_t>(16, 2 * slots_.size()), {});
    for (std::size_t number = 0; number < words_.size(); ++number)
      slots_[slot_of(words_[number])] = {tag_of(words_[number]), static_cast<std::int32_t>(number)};
  }

  std::vector<std::string> words_;
  std::vector<Slot> slots_;  // none or a power of 2, at most half full
};

}  // namespace lockstep::inline v0::data
