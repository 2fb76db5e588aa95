#include "lockstep/onnx/import.h"

#include "lockstep/onnx/read_model.h"

namespace lockstep::inline v0::onnx {

ImportedNetwork import_file(const std::filesystem::path& file, bool keeps_two_biases) {
  return import_network(read_model_file(file), file.string(),
                        {.name = file.stem().string(), .keeps_two_biases = keeps_two_biases});
}

}  // namespace lockstep::inline v0::onnx
