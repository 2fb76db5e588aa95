// The parts of a data set that a training holds out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/fields/fields.h"

namespace lockstep::inline v0::data {

/// A part of a data set. The values are indices of SplitInfo::records.
enum class SplitPart : std::uint8_t { training, validation, test };

/// Which fraction of the records a training holds out. The part of a record is a function of the
/// seed, of its position in the data set and of the classes of all records.
struct RecordSplit {
  double validation = 0;   ///< fraction of the validation records; 0: none
  double test = 0;         ///< fraction of the test records; 0: none
  std::uint64_t seed = 1;  ///< the seed of the training

  bool is_set() const { return validation > 0 || test > 0; }  ///< whether there is a split
  /// Throws Error (input) unless each fraction, and their sum, are below 1.
  void check() const;
  /// ", the training part of a split (validation 0.2, test 0.1)".
  std::string preparation(SplitPart part) const;
  bool operator==(const RecordSplit&) const = default;
};

/// A split of a data set, and the part of it that is read.
struct SplitSelection {
  RecordSplit split = {};                ///< which records are held out
  SplitPart part = SplitPart::training;  ///< the part that is read
};

/// The result of a split.
struct SplitInfo {
  RecordSplit split = {};                    ///< which records are held out
  std::array<std::int64_t, 3> records = {};  ///< records of each SplitPart
  std::string label = {};  ///< each class has the same fractions; empty: there are no classes

  std::int64_t total() const;  ///< records of all parts
  /// "120 training, 30 validation, 30 test records, stratified by species".
  std::string text() const;
};

/// The part of each record. `groups` has the class of each record, or the same number for all. The
/// validation and test records of a group are its fractions, to within one record; a group has at
/// least one training record.
std::vector<SplitPart> split_records(const RecordSplit& split,
                                     std::span<const std::int32_t> groups);

/// The records of each part. Throws Error (data) at `where` for a fraction without a record.
SplitInfo count_parts(const RecordSplit& split, std::span<const SplitPart> parts,
                      const std::string& label, const std::string& where);

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

/// The fractions. Another split changes the preparation of the data, which a resumed run compares.
template <>
struct Fields<data::RecordSplit> {
  using Options = data::RecordSplit;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::validation,
            {"validation_split", kCommonOptions,
             "Fraction of the records of --data, below 1, to hold out and to evaluate after each "
             "epoch instead of --validation-data. Each class has the same fraction; 0: none"},
            {.min = 0, .max = 1},
            {.value = "F"}},
      Field{&Options::test,
            {"test_split", kCommonOptions,
             "Fraction of the records of --data, below 1, to hold out and to evaluate once, at the "
             "end of the training; 0: none"},
            {.min = 0, .max = 1},
            {.value = "F"}}};
};

}  // namespace lockstep::inline v0
