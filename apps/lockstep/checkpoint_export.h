// lockstep checkpoint export: a trained model as a file for other programs.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

namespace CLI {
class App;
}

namespace lockstep::apps {

struct ExportArguments {
  std::filesystem::path output;
  std::string format = "auto";  ///< by the ending of `output`
  bool keep_normalization = false;
  bool with_preprocessing = false;
  std::string weights = "float32";
  std::string layout = "file";
};

/// Declares the options of `lockstep checkpoint export` but PATH.
void add_export_options(CLI::App& command, ExportArguments& arguments);

/// Throws Error (input) for options that do not fit each other, and for an output that ends as none
/// of the formats.
void check_export(const ExportArguments& arguments);

/// Exports the complete and undamaged checkpoint `checkpoint`, and prints a line about it to `out`.
/// The output appears whole or not at all. Throws Error.
void export_checkpoint(const std::filesystem::path& checkpoint, const ExportArguments& arguments,
                       std::ostream& out);

}  // namespace lockstep::apps
