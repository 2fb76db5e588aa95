// What a tokenizer changes in a text before it splits it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inline v0::data {

/// Steps that each change the whole text, as the normalizers of the tokenizers library.
class TextNormalizer {
 public:
  /// One change.
  enum class Step {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lower_case,           ///< each letter by itself
    strip_accents,        ///< removes marks of all kinds (is_accent())
    strip_nonspacing,     ///< removes the marks that BERT's normalizer removes (is_mark())
    clean,                ///< removes control characters; other white space becomes a space
    separate_ideographs,  ///< puts a space on both sides of each CJK ideograph
  };

  TextNormalizer() = default;
  /// `steps`, of which the first is applied first.
  explicit TextNormalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  /// The normalizer of BERT. `strips_accents`: letters lose their marks.
  static TextNormalizer bert(bool cleans, bool separates_ideographs, bool strips_accents,
                             bool lowers_case);

  bool is_empty() const { return steps_.empty(); }  ///< whether it changes nothing
  /// Adds the steps of `other` after those of this.
  void append(const TextNormalizer& other);
  /// The normalized text, of UTF-8.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace lockstep::inline v0::data
