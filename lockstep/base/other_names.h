// Names of options and values in other programs, for suggestions in errors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0 {

/// A name in another program, such as Lightning's --max_epochs, and ours for the same thing.
struct OtherName {
  std::string_view other;      ///< in lower case, with dashes for underscores
  std::string_view name;       ///< "--epochs", "float16"; may be followed by a value
  std::string_view note = {};  ///< how ours differs: "of all replicas"; empty: it means the same

  /// The first word of `name`.
  std::string_view first_word() const { return name.substr(0, name.find(' ')); }
  /// " (did you mean --epochs?)", " (did you mean --global-batch, of all replicas?)"
  std::string suggestion() const;
};

/// The names that `word`, an option, a command or a value, has here, best first. Case does not
/// matter, nor whether underscores or dashes separate words.
std::vector<OtherName> names_here(std::string_view word);

}  // namespace lockstep::inline v0
