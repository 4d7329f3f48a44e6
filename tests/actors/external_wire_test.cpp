// What a server of an external environment may send, byte by byte and type by type.
#include <limits>

#include "actors/external/environment.h"
#include "tests/actors/external_server.h"

namespace motley::actors {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ExternalError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refusal(const std::string& bytes) {
  return refusal([&] { ExternalAnswer answer(bytes); });
}

template <typename Key>
std::string map_with_key(const Key& key) {
  msgpack::sbuffer buffer;
  msgpack::packer out(buffer);
  out.pack_map(2).pack("id").pack(1).pack(key).pack(2);
  return {buffer.data(), buffer.size()};
}

TEST_CASE("an answer that is no answer: the message says what it is", "[external]") {
  CHECK(refusal(std::string()) == "not msgpack, or cut short");
  CHECK(refusal("\xc1") == "not msgpack, or cut short");
  const std::string good = Fields(7).add("reward", 1.0).bytes();
  CHECK(ExternalAnswer(good).id() == 7);
  for (size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal(good.substr(0, size)) == "not msgpack, or cut short");
  }
  CHECK(refusal(good + "\xc0") == "msgpack with 1 bytes after its end");
  CHECK(refusal("\x01") == "a whole number, not a map");
  CHECK(refusal("\x80") == "a map without the request's \"id\"");
  CHECK(refusal(std::string("\x81\xa2id\xff", 5)) == "\"id\" is negative; it must be a whole number from 0 on");
  CHECK(refusal("\x81\xa2id\xa1x") == "\"id\" is text; it must be a whole number from 0 on");
  CHECK(refusal(map_with_key(3)) == "a map with a whole number as a key");
  CHECK(refusal(map_with_key("id")) == "a map with two keys \"id\"");
  CHECK(refusal(map_with_key(std::string("a\x1b[31m\nb"))) == "nothing was refused");
  CHECK(refusal("\xc7\x01\x05z").starts_with("more than a message may hold"));         // an extension type
  CHECK(refusal("\xdf\xff\xff\xff\xff").starts_with("more than a message may hold"));  // a map of 2^32 - 1
  CHECK(refusal("\xdd\xff\xff\xff\xff").starts_with("more than a message may hold"));  // a list of as many
  CHECK(refusal("\xdb\xff\xff\xff\xff") == "not msgpack, or cut short");  // a text of as many, which are not there
  CHECK(refusal(std::string(100000, '\x91')).starts_with("more than a message may hold"));  // nested
}

TEST_CASE("a reward of an answer: number, range, parts; nothing else is one", "[external]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const ExternalInfo info;
  const auto read = [&](const Fields& fields) {
    ExternalAnswer answer(fields.bytes());
    answer.set_origin("here: ");
    const envs::Reward reward = read_reward(answer, info);
    answer.done();
    return reward;
  };
  const auto with = [](const auto& value) { return Fields(1).add("reward", value); };
  using Parts = std::map<std::string, double>;
  const envs::Reward good = read(with(0.25).add("parts", Parts{{"a_b1", -7.5}}).add("format_error", true));
  CHECK(good.value == 0.25);
  CHECK(good.parts == Parts{{"a_b1", -7.5}});
  CHECK(good.format_error);
  CHECK(read(with(1)).value == 1.0);  // a whole number is one
  CHECK(read(with(0.5F)).value == 0.5);

  const auto refused = [&](const Fields& fields) { return refusal([&] { read(fields); }); };
  CHECK(refused(Fields(1)) == "here: \"reward\" is missing");
  CHECK(refused(with("1")) == "here: \"reward\" is text; it must be a number");
  CHECK(refused(with(true)) == "here: \"reward\" is a boolean; it must be a number");
  CHECK(refused(with(std::numeric_limits<double>::quiet_NaN())) == "here: \"reward\" is nan; it must be finite");
  CHECK(refused(with(-kInfinity)) == "here: \"reward\" is -inf; it must be finite");
  CHECK(refused(with(1.5)) == "here: \"reward\" is 1.5; it must be from 0 to 1");
  CHECK(refused(with(-1)) == "here: \"reward\" is -1; it must be from 0 to 1");
  CHECK(refused(with(1).add("parts", Parts{{"a", kInfinity}})) == "here: \"a\" of \"parts\" is inf; it must be finite");
  CHECK(refused(with(1).add("parts", Parts{{"a b", 1}})).find("\"parts\" has a name that is no word") !=
        std::string::npos);
  CHECK(refused(with(1).add("rewrad", 2)) ==
        "here: unknown key \"rewrad\"; allowed here: format_error, id, parts, reward");
}

TEST_CASE("hello: version, name, sizes, symbols and range are checked", "[external]") {
  const auto hello = [](const std::function<void(Fields&)>& change) {
    Fields fields(1);
    fields.add("name", "x");
    change(fields);
    return refusal([&] { read_hello(ExternalAnswer(fields.bytes())); });
  };
  const auto speaks = [](Fields& fields) -> Fields& { return fields.add("motley", 1); };
  const std::vector<std::string> symbols{"a"};
  CHECK(hello([&](Fields& f) { speaks(f).add("symbols", symbols); }) == "nothing was refused");
  CHECK(hello([&](Fields& f) { f.add("symbols", symbols).add("motley", 2); }) ==
        "the server speaks version 2 of the protocol, this motley speaks 1");
  CHECK(hello([&](Fields& f) { f.add("symbols", symbols); }) ==
        "the server speaks version (none) of the protocol, this motley speaks 1");
  CHECK(hello([&](Fields& f) { speaks(f); }).find("neither \"symbols\" nor \"bytes\"") != std::string::npos);
  CHECK(hello([&](Fields& f) { speaks(f).add("symbols", "ab"); }) == "\"symbols\" is text; it must be a list of texts");
  CHECK(hello([&](Fields& f) { speaks(f).add("symbols", symbols).add("training", -3); }) ==
        "\"training\" is negative; it must be a whole number from 0 on");
  using Numbers = std::vector<double>;
  CHECK(hello([&](Fields& f) {
          speaks(f).add("symbols", symbols).add("reward_range", Numbers{1, 1});
        }) == "\"reward_range\" is [1, 1]; the first must be below the second");
  CHECK(hello([&](Fields& f) { speaks(f).add("symbols", symbols).add("reward_range", Numbers{0}); }) ==
        "\"reward_range\" must be a list of two numbers");
  CHECK(hello([&](Fields& f) { speaks(f).add("symbols", symbols).add("version", std::string(101, 'x')); }) ==
        "\"version\" has 101 bytes; at most 100");
}

}  // namespace
}  // namespace motley::actors
