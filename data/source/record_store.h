// Where the records of a cache are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Records of one size, each put once and then got by any thread. Who gets a record knows that its put() has returned.
class RecordStore {
 public:
  virtual ~RecordStore() = default;
  /// Whether all records are there from the start; none is put then.
  virtual bool is_complete() const { return false; }
  /// Throws Error where it cannot be kept.
  virtual void put(std::int64_t record_id, std::span<const std::byte> record) = 0;
  /// A view into the store's memory, or into `scratch`. Throws Error (data) for damage.
  virtual std::span<const std::byte> get(std::int64_t record_id, std::vector<std::byte>& scratch) const = 0;
};

}  // namespace lockstep::data
