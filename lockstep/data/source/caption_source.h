// Images with captions, which are in a table, for networks that describe images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/text_source.h"
#include "lockstep/data/text/target_text.h"

namespace lockstep::inline v0::data {

/// A sample is a row of a table. The first input "image" is the image [H, W, C] of the file that
/// the column TextOptions::image names, relative to the directory of the table. The text in the
/// column TextOptions::target becomes the int32 input "tokens" [T], a begin token and the text, and
/// the int32 target "next" [T], the text and an end token (target_text.h). Several rows may have
/// the same image. A longer text loses its last tokens; SourceInfo::preparation counts such texts.
///
/// The files are tables in UTF-8 whose first line has the names of the columns, separated as in
/// that line. The texts and the names of the images are in memory, in each rank. An image is
/// opened, and a text converted to tokens, when its record is read.
class CaptionSource final : public RecordSource {
 public:
  /// `shape` is the shape [H, W, C] of all images; empty: the shape of the first, whose header is
  /// read. Throws Error (data) with file, line and column for an invalid table, text or file name,
  /// for an empty text, and without rows. Throws Error (input) for invalid options, for a column
  /// that a table lacks or has twice, and for another tokenizer than that of the schema.
  explicit CaptionSource(const std::vector<std::filesystem::path>& files, TextOptions options,
                         const std::vector<std::int64_t>& shape = {});

  void read(std::int64_t record_id, Sample& sample) const override;
  [[noreturn]] void fail_image(std::int64_t record_id, const Error& error) const override;

  /// The file of the image of a record.
  std::filesystem::path image_of(std::int64_t record_id) const;

 private:
  struct Caption {
    std::string image;  // as in the table
    std::string text;
    std::size_t table = 0;  // in files_
    std::int64_t line = 0;
  };

  void read_rows();
  void check_texts();
  void set_info(std::vector<std::int64_t> shape);
  std::string read_image(std::int64_t record_id) const;

  std::vector<std::filesystem::path> files_;
  TextOptions options_;
  std::vector<Caption> captions_;
  std::int64_t cut_ = 0;  // texts that are too long
  std::shared_ptr<const TextSchema> schema_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TargetVocabulary vocabulary_;
  std::optional<ImageTransform> as_stored_;
};

}  // namespace lockstep::inline v0::data
