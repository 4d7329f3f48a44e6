// The correction that docs/adding-a-correction.md adds: its weights, and that the page shows the code compiled here.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "tests/algos/drawn_tokens.h"

namespace motley::algos {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(MOTLEY_SOURCE_DIR "/" + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_CASE("power-is weights by the ratio to a power") {
  CHECK(weight_of("power-is", token_of_ratio(4.0), 1.0) == Approx(2.0));
  CHECK(weight_of("power-is", token_of_ratio(4.0), 1.0, {{"power-is.power", 1.0}}) == Approx(4.0));
  CHECK(weight_of("power-is", token_of_ratio(4.0), 1.0, {{"power-is.power", 0.0}}) == 1.0);
  CHECK(weight_of("power-is", {-1.0, -101.0, 0.0}, 1.0) == std::exp(kLogRatioBound));
  CHECK_THROWS_AS(make_correction("power-is", {{"power-is.power", 1.5}}), std::invalid_argument);
  CHECK_NOTHROW(make_correction("sc+power-is+veto"));
}

TEST_CASE("the page on adding a correction shows the code that is compiled here") {
  const std::string page = read("docs/adding-a-correction.md"), code = read("tests/algos/example_correction.cpp");
  REQUIRE(!code.empty());
  CHECK(page.find("```cpp\n" + code + "```\n") != std::string::npos);
  const std::string test = read("tests/algos/example_correction_test.cpp");
  const size_t begin = test.find("TEST_CASE(\"power-is"), end = test.find("TEST_CASE(\"the page");
  CHECK(page.find("```cpp\n" + test.substr(begin, end - begin - 1) + "```\n") != std::string::npos);
}

}  // namespace
}  // namespace motley::algos
