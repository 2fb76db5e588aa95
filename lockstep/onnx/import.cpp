#include "lockstep/onnx/import.h"

#include "lockstep/onnx/read_model.h"

namespace lockstep::inline v0::onnx {

ImportedNetwork import_file(const std::filesystem::path& file, ImportOptions options) {
  options.name = file.stem().string();
  return import_network(read_model_file(file), file.string(), options);
}

}  // namespace lockstep::inline v0::onnx
