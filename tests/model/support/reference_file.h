// A file of tests/reference, as scripts/make_reference writes them: safetensors with float32 and
// int32 arrays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

class ReferenceFile {
 public:
  struct Array {
    Shape shape;
    std::vector<float> values;
  };

  /// Reads tests/reference/NAME.safetensors. Throws std::runtime_error where it cannot.
  explicit ReferenceFile(const std::string& name);

  /// The array called `name`; throws std::out_of_range with its name where there is none.
  const Array& array(const std::string& name) const;
  const std::vector<std::int32_t>& integers(const std::string& name) const;
  /// Names of the float arrays that begin with `prefix`.
  std::vector<std::string> names(std::string_view prefix) const;

 private:
  std::map<std::string, Array> arrays_;
  std::map<std::string, std::vector<std::int32_t>> integers_;
};

}  // namespace lockstep::inline v0::model
