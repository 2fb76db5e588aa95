// Samples: the named tensors of one record, and arrays of the tensors of all records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/sample/sample_spec.h"

namespace lockstep::inline v0::data {

/// Throws Error (input) for the access to the tensor `name` of `type` as `requested`.
[[noreturn]] void throw_wrong_type(std::string_view name, ElementType requested, ElementType type);
/// Throws Error (input) that lists the `known` names of `what`, such as "inputs".
[[noreturn]] void throw_no_tensor(std::string_view what, std::string_view name,
                                  const std::vector<std::string_view>& known);

/// The tensor called `name`; throws throw_no_tensor() if there is none.
template <typename Tensor>
Tensor& find_tensor(std::span<Tensor> tensors, std::string_view what, std::string_view name) {
  std::vector<std::string_view> known;
  for (Tensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  for (const Tensor& tensor : tensors) known.push_back(tensor.name);
  throw_no_tensor(what, name, known);
}

class RecordSource;

/// The first input of a record as it is stored, for a caller of RecordSource::read() that decodes
/// it itself.
struct StoredImage {
  std::span<const std::uint8_t> bytes = {};  ///< valid until this thread reads another record
  bool is_encoded = false;                   ///< a JPEG or PNG file; otherwise pixels [shape...]
  std::string memory = {};                   ///< owns `bytes` if the source does not
  const RecordSource* source = nullptr;      ///< adds the file of the image to errors; or null
  std::int64_t record_id = 0;                ///< id in `source`
  bool is_mapped = false;                    ///< the bytes can be lost: RecordSource::keeps_image()

  /// `count` pixels in `memory`, to be written.
  std::span<std::uint8_t> allocate(std::size_t count);
};

/// Each byte of the numbers that pad a short sample: zeros, or kMasked.
constexpr std::byte padding_of(bool masked) {
  static_assert(kMasked == -1);  // two's complement: all bytes are 255
  return masked ? std::byte{255} : std::byte{0};
}

/// The values of one sample of a ragged tensor, before its batch is padded.
struct RaggedRow {
  std::vector<std::byte> bytes = {};      ///< values of numeric types
  std::vector<std::string> strings = {};  ///< values of ElementType::bytes

  bool operator==(const RaggedRow&) const = default;
};

/// One tensor of a sample: a view of the memory of its batch.
struct TensorView {
  std::string_view name;                    ///< as in the spec
  ElementType type = ElementType::float32;  ///< uint8 for images whose pixels are requested
  std::byte* data = nullptr;                ///< address of the first element
  std::size_t elements = 0;                 ///< number of elements
  std::size_t unit = 0;                     ///< if ragged: elements per step of the first extent
  RaggedRow* row = nullptr;                 ///< if ragged: the memory of the elements

  /// Sets the first extent of a ragged tensor, whose elements must then be written. Throws Error
  /// (input) for any other tensor, Error (data) for more than kMaxElements elements.
  void set_length(std::size_t length);
  /// Makes the tensor a view of `to`, a row of a ragged tensor.
  void attach(RaggedRow& to);

  /// The elements, row-major; std::string for ElementType::bytes. Throws Error (input) for another
  /// type than that of the tensor.
  template <typename T>
  std::span<T> as() const {
    if (type != element_type_of<T>()) throw_wrong_type(name, element_type_of<T>(), type);
    return elements_as<T>();
  }

 private:
  friend struct Sample;
  template <typename T>
  std::span<T> elements_as() const {
    return {reinterpret_cast<T*>(data), elements};
  }
};

/// One decoded record, as views of the memory of its batch (Batch::sample). Images are float32,
/// value / 255, or uint8 if pixels are requested.
struct Sample {
  std::vector<TensorView> inputs = {};   ///< as in the spec
  std::vector<TensorView> targets = {};  ///< as in the spec
  float weight = 1;                      ///< weight in the loss, if the spec is weighted
  StoredImage* image = nullptr;  ///< receives the first input as stored; null: it is decoded
  std::uint64_t seed = 0;        ///< seed and epoch of the pass; sources with maps or recipes
  std::int64_t epoch = 0;        ///< build a SampleKey from them and the record id

  /// The input called `name`. Throws Error (input) that lists the names if there is none.
  const TensorView& input(std::string_view name) const;
  TensorView& input(std::string_view name);               ///< writable
  const TensorView& target(std::string_view name) const;  ///< the target called `name`
  TensorView& target(std::string_view name);              ///< writable

  /// The elements of the first input; empty if it is not float32.
  std::span<float> features() const { return first_of<float>(inputs); }
  /// The elements of the first input if it is uint8; features() is then empty.
  std::span<std::uint8_t> pixels() const { return first_of<std::uint8_t>(inputs); }
  /// The elements of the first target; empty if it is not float32.
  std::span<float> values() const { return first_of<float>(targets); }
  /// The class number in the first target. Throws Error (input) if it is not one class number.
  std::int32_t& label() const {
    if (targets.empty() || targets.front().type != ElementType::int32 ||
        targets.front().elements != 1)
      throw_no_label();
    return *reinterpret_cast<std::int32_t*>(targets.front().data);
  }

  /// Stores a uint8 image; `normalization` applies to features only.
  void set_image(std::span<const std::uint8_t> pixels_of_image,
                 const ChannelNormalization& normalization = {});
  /// Like set_image(), without a copy for a StoredImage: it must stay until this thread reads
  /// another record.
  void set_image_view(std::span<const std::uint8_t> pixels_of_image,
                      const ChannelNormalization& normalization = {});

 private:
  template <typename T>
  static std::span<T> first_of(const std::vector<TensorView>& tensors) {
    if (tensors.empty() || tensors.front().type != element_type_of<T>()) return {};
    return tensors.front().elements_as<T>();
  }
  [[noreturn]] static void throw_no_label();
};

/// The values that a map may depend on, so that its result is the same on every rank and after a
/// resume.
struct SampleKey {
  std::uint64_t seed = 0;      ///< seed of the run
  std::int64_t epoch = 0;      ///< counted from 0
  std::int64_t record_id = 0;  ///< id of the record, the same for every world size
};

/// Modifies one sample in place. Called from several threads concurrently.
using SampleMap = std::function<void(Sample&, const SampleKey&)>;

/// Returns whether to keep a sample. Called from several threads concurrently.
using SamplePredicate = std::function<bool(const Sample&)>;

/// Writes the whole record `record_id` to the sample's inputs and targets. Called from several
/// threads concurrently, in any order, possibly more than once per record. It must be a pure
/// function of the record id.
using SampleGenerator = std::function<void(std::int64_t record_id, Sample& sample)>;

/// The features of all records, consecutive: floats or uint8 images.
using MemoryFeatures = std::variant<std::vector<float>, std::vector<std::uint8_t>>;
/// Class numbers [N], or targets [N, targets].
using MemoryLabels = std::variant<std::vector<std::int32_t>, std::vector<float>>;
/// The values of one tensor of all records, consecutive.
using MemoryArray =
    std::variant<std::vector<float>, std::vector<std::uint8_t>, std::vector<std::int32_t>,
                 std::vector<std::int64_t>, std::vector<std::string>>;
/// One tensor of all records: [N, shape...], and the length of each sample if ragged, [N].
struct MemoryTensor {
  /// Sets both members.
  template <typename T>
  MemoryTensor(std::vector<T> all, std::vector<std::int32_t> length_of_each = {})
      : values(std::move(all)), lengths(std::move(length_of_each)) {}

  MemoryArray values;                 ///< [N, shape...], without padding
  std::vector<std::int32_t> lengths;  ///< [N] first extents, if ragged
};

}  // namespace lockstep::inline v0::data
