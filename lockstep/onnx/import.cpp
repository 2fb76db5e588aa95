#include "lockstep/onnx/import.h"

#include "lockstep/onnx/read_model.h"

namespace lockstep::onnx {

ImportedNetwork import_file(const std::filesystem::path& file) {
  return import_network(read_model_file(file), file.string(), file.stem().string());
}

}  // namespace lockstep::onnx
