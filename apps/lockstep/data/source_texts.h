// Source texts for a model that was trained on pairs of texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/text/tokenizer.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::apps {

/// The lines of a file, or of standard input if `path` is "-". Throws Error (data).
std::vector<std::string> read_source_lines(const std::string& path);
/// `path`, or "standard input", for messages.
std::string name_of_sources(const std::string& path);

/// The context of a source: the inputs "source" [S] and, if the network has it, "source_segments"
/// [S], as in data::TextTableSource.
class SourceText {
 public:
  /// Encodes `text` for a network with these inputs besides its tokens. `where` is for messages.
  /// Throws Error (input) for other inputs, for a text without tokens and for the errors of
  /// Tokenizer::encode().
  SourceText(std::string text, const data::Tokenizer& tokenizer,
             const std::vector<model::NetworkInput>& inputs, const std::string& where);

  const std::string& text() const { return text_; }
  bool is_cut() const { return is_cut_; }  ///< whether the text has more than S tokens
  /// Views of this object, in the order of the inputs.
  std::vector<model::InputView> context() const;

 private:
  std::string text_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> segments_;
  std::vector<bool> are_segments_;  // by input
  bool is_cut_ = false;
};

}  // namespace lockstep::inline v0::apps
