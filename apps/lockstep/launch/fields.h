// What other processes send is checked field by field before it is used. Everything here throws Error (communication)
// `[launch] expected …; got …`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::apps::launch {

/// The document in a frame: an array or an object of at most `values` values, three levels deep.
nlohmann::json parse_fields(std::string_view text, std::size_t values);

/// The field of an object, or the element of an array.
const nlohmann::json& field(const nlohmann::json& object, const char* name);
const nlohmann::json& element(const nlohmann::json& array, std::size_t index);
const nlohmann::json& require_array(const nlohmann::json& value, std::size_t most);

int integer_of(const nlohmann::json& value, int least, int most);
/// Text of at most `most` bytes without control characters.
std::string line_of(const nlohmann::json& value, std::size_t most);
/// Text of at most `most` bytes.
std::string text_of(const nlohmann::json& value, std::size_t most);
/// Numbers of processors.
std::vector<int> processors_of(const nlohmann::json& value);

/// A whole decimal number, without sign.
int parse_integer(std::string_view text, int least, int most);

/// What mpirun takes for one name of a host: letters, digits, dots, dashes and underscores.
bool is_host_name(std::string_view name);
bool is_interface_name(std::string_view name);
/// As CUDA_VISIBLE_DEVICES has them: numbers and names such as GPU-8932f937, separated by commas.
bool is_gpu_list(std::string_view list);
/// A numeric address, IPv4 or IPv6, perhaps with the interface that it belongs to ("fe80::1%eth0").
bool is_address(std::string_view address);
/// Every character is a letter or a digit of ASCII, or one of `more`.
bool consists_of(std::string_view text, std::string_view more);

[[noreturn]] void refuse(std::string_view expected, std::string_view got);

}  // namespace lockstep::apps::launch
