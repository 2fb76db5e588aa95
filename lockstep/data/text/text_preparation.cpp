#include "lockstep/data/text/text_preparation.h"

#include <string>

#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {

void TextPreparation::split(std::string_view text, const std::function<void(std::int32_t)>& token,
                            const std::function<void(std::string_view)>& word) const {
  check_utf8(text);
  exact.split(text, token, [&](std::string_view part) {
    std::string changed;
    if (!normalizer.is_empty()) part = changed = normalizer.apply(part);
    normalized.split(part, token, [&](std::string_view piece) { splitter.split(piece, word); });
  });
}

}  // namespace lockstep::inline v0::data
