#include "lockstep/data/source/caption_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::data {
namespace {

/// An option that captions do not have; empty: none is set.
std::string other_option(const TextOptions& options) {
  const bool is_of_pairs = options.schema && !options.schema->source.empty();
  if (!options.source.empty() || is_of_pairs) return "source=";
  if (options.target_length > 0) return "target-length=";
  if (!options.column.empty()) return "column=";
  if (!options.label.empty()) return "label=";
  if (options.stride > 0) return "stride=";
  return options.documents ? "documents=" : "";
}

}  // namespace

CaptionSource::CaptionSource(const std::vector<std::filesystem::path>& files, TextOptions options,
                             const std::vector<std::int64_t>& shape)
    : files_(files), options_(std::move(options)) {
  if (files_.empty())
    throw Error(ErrorCategory::input, "text", "expected at least one file", "there is none");
  const std::string where = files_.front().string();
  if (const TextSchema* const known = options_.schema.get()) {
    if (options_.image.empty()) options_.image = known->image;
    if (options_.target.empty()) options_.target = known->target;
  }
  if (options_.image.empty() || options_.target.empty())
    throw Error(ErrorCategory::input, where,
                "expected image= and target=, the columns of the images' names and of the captions",
                fmt::format("got no {}=", options_.image.empty() ? "image" : "target"));
  if (const std::string other = other_option(options_); !other.empty())
    throw Error(ErrorCategory::input, where,
                "expected only tokenizer=, length= and target= with image=", "got " + other);
  read_rows();
  check_texts();
  set_info(shape);
}

void CaptionSource::read_rows() {
  for (std::size_t table = 0; table < files_.size(); ++table) {
    const std::string bytes = read_all(InputFile(files_[table]), Compression::none);
    CsvRows rows(bytes, files_[table].string(), separator_of(bytes, ','));
    if (!rows.next()) continue;
    const std::size_t columns = rows.fields().size();
    const std::size_t image = rows.require_column(options_.image);
    const std::size_t text = rows.require_column(options_.target);
    while (rows.next()) {
      rows.require_fields(columns);
      const std::string_view name = rows.fields()[image];
      if (name.empty() || name.find('\0') != std::string_view::npos)
        rows.fail(image, "expected the name of an image file",
                  name.empty() ? "the field is empty" : "it has a zero byte");
      captions_.push_back(
          {std::string(name), std::string(rows.fields()[text]), table, rows.line()});
    }
  }
  if (captions_.empty())
    throw Error(ErrorCategory::data, files_.front().string(),
                "expected at least one row after the first line", "there is none");
}

void CaptionSource::check_texts() {
  const auto for_each_text = [this](const auto& use) {
    for (const Caption& caption : captions_) {
      try {
        use(caption.text);
      } catch (const Error& error) {
        if (error.category() != ErrorCategory::data) throw;
        throw Error(ErrorCategory::data,
                    fmt::format("{}: line {}", files_[caption.table].string(), caption.line),
                    error.message().expected, error.message().actual);
      }
    }
  };
  TextSchema schema = options_.describe(files_.front().string(), [&] {
    CharacterSet characters;
    for_each_text([&](const std::string& text) { characters.add(text); });
    return characters.vocabulary();
  });
  schema.image = options_.image;
  schema.target = options_.target;
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  tokenizer_ = schema_->open();
  vocabulary_ = TargetVocabulary::for_tokenizer(*tokenizer_);
  for_each_text([&](const std::string& text) {
    if (target_tokens(*tokenizer_, text, static_cast<std::size_t>(schema_->length)).is_cut) ++cut_;
  });
}

void CaptionSource::set_info(std::vector<std::int64_t> shape) {
  if (shape.empty()) {
    const std::string bytes = read_image(0);
    try {
      const ImageHeader header = ImageDecoder().open(bytes_of(bytes));
      shape = {header.height, header.width, header.channels};
    } catch (const Error& error) {
      fail_image(0, error);
    }
  }
  const std::string where = files_.front().string();
  check_shape(shape, where);
  if (shape.size() != 3)
    throw Error(ErrorCategory::input, where, "expected a shape HxWxC for images",
                fmt::format("got [{}]", fmt::join(shape, ", ")));
  as_stored_.emplace(ImageRecipe::parse("none", static_cast<int>(shape[0]),
                                        static_cast<int>(shape[1]), static_cast<int>(shape[2])));
  const auto tensor = [&](const char* name) {
    return TensorSpec{.name = name,
                      .type = ElementType::int32,
                      .shape = {schema_->length},
                      .classes = vocabulary_.size};
  };
  std::string preparation =
      fmt::format(", tokenizer {} ({} tokens, {}), {}{}", schema_->name(), vocabulary_.size,
                  schema_->hash, counted(schema_->length, "position"),
                  cut_ == 0 ? "" : fmt::format(", {} cut", counted(cut_, "longer text")));
  std::uint64_t hash = 1;
  for (const Caption& caption : captions_)
    for (const std::string* text : {&caption.image, &caption.text})
      hash = XXH3_64bits_withSeed(text->data(), text->size(), hash);
  info_ = {.spec = {.inputs = {{.name = "image", .shape = std::move(shape)}, tensor("tokens")},
                    .targets = {tensor("next")}},
           .size = std::ssize(captions_),
           .description = fmt::format(
               "{} of images in {}{}", counted(std::ssize(captions_), "caption"),
               files_.size() == 1 ? where : counted(std::ssize(files_), "table"), preparation),
           .preparation = std::move(preparation),
           .has_images = true,
           .has_encoded_images = true,
           .text = schema_,
           .identity = hash};
}

std::filesystem::path CaptionSource::image_of(std::int64_t record_id) const {
  const Caption& caption = captions_[static_cast<std::size_t>(record_id)];
  return files_[caption.table].parent_path() / caption.image;
}

std::string CaptionSource::read_image(std::int64_t record_id) const {
  try {
    return read_all(InputFile(image_of(record_id)), Compression::none);
  } catch (const Error& error) {
    fail_image(record_id, error);
  }
}

void CaptionSource::fail_image(std::int64_t record_id, const Error& error) const {
  const Caption& caption = captions_[static_cast<std::size_t>(record_id)];
  const std::string file = image_of(record_id).string();
  const std::string reason = error.what();
  throw Error(
      ErrorCategory::data, fmt::format("{}: line {}", files_[caption.table].string(), caption.line),
      "expected a usable image",
      reason.find(file) == std::string::npos ? fmt::format("{}: {}", file, reason) : reason);
}

void CaptionSource::read(std::int64_t record_id, Sample& sample) const {
  const Caption& caption = captions_[static_cast<std::size_t>(record_id)];
  const TextTokens text =
      target_tokens(*tokenizer_, caption.text, static_cast<std::size_t>(schema_->length));
  write_target(text.tokens, vocabulary_, sample.inputs[1].as<std::int32_t>(),
               sample.targets[0].as<std::int32_t>());
  set_image_file(*this, record_id, read_image(record_id), *as_stored_, sample);
}

}  // namespace lockstep::inline v0::data
