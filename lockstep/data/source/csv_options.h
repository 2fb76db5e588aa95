// Texts of options, cut where they are separated.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// What lies between the separators of `text`; one empty piece for an empty text.
std::vector<std::string> pieces_of(std::string_view text, char separator);

// Which columns of a table mean what.

/// Whether a table begins with the names of its columns; automatic: seen from its first lines.
enum class CsvHeader { automatic, yes, no };

/// A column is named as the header names it, or by its number from 1.
struct CsvOptions {
  CsvHeader header = CsvHeader::automatic;    ///< whether the first line holds names
  std::string label = {};                     ///< the class; empty: the last column, unless there are targets
  std::vector<std::string> targets = {};      ///< numbers to be predicted (regression), in the place of a label
  std::vector<std::string> columns = {};      ///< features, in this order; empty: all that are nothing else
  std::vector<std::string> leave_out = {};    ///< neither features nor label
  std::vector<std::string> categorical = {};  ///< words: each value is a class, or a feature of its own that is 0 or 1
  bool unknown_column = false;  ///< each categorical column has one more feature, for values that are not known
  /// The file whose values and classes this one is read by, because a network was trained on it; empty: its own. It is
  /// read with the same options.
  std::filesystem::path like = {};

  /// Reads "label=species&categorical=color,shape": the fields above, lists with commas, `header=yes`,
  /// `unknown=column`. Throws Error (input) that begins with `where`.
  static CsvOptions parse(std::string_view text, const std::string& where);
};

/// A table and how it is read.
struct CsvSpec {
  std::filesystem::path file;  ///< the table
  CsvOptions options = {};     ///< how to read it

  /// Reads "FILE", or "FILE?label=species&...", with options after the last question mark. Throws Error (input) that
  /// begins with `where`.
  static CsvSpec parse(std::string_view text, const std::string& where);
};

}  // namespace lockstep::data
