// The families of programs with one seeded bug, in bash, awk and Python. A program has one slot; the bug is a wrong
// value in it, and the mended program's outputs are computed here, beside the program.
#include <algorithm>
#include <functional>

#include "envs/repository/small_task.h"

namespace motley::envs {

namespace {

using Arguments = std::vector<int64_t>;
using Cases = std::vector<std::pair<Arguments, std::string>>;  // with the right output

struct Program {
  std::string name;                 // of the file, without its ending
  std::string before, after;        // around the slot
  std::vector<std::string> values;  // that the slot may have
  size_t arguments = 1;
  std::function<std::string(const std::string& value, const Arguments&)> output;
  std::string left{};  // end of `before` that makes the slot the first of its kind on the line, for sed
};

std::string text(int64_t value) { return std::to_string(value); }
int64_t number(const std::string& value) { return std::stoll(value); }
int64_t applied(const std::string& op, int64_t a, int64_t b) { return op == "+" ? a + b : a - b; }
const std::vector<std::string> kDigits{"2", "3", "4", "5", "6", "7", "8", "9"};
const std::vector<std::string> kSigns{"+", "-"};

std::string compare(const std::string& op, int64_t a, int64_t b) {
  return (op == "-gt" || op == ">" ? a > b : a < b) ? "yes" : "no";
}
std::string ends(const std::string& value, const Arguments& a) {
  return text(value == "max" || value == "-gt" || value == ">" ? std::max(a[0], a[1]) : std::min(a[0], a[1]));
}

std::vector<Program> bash_programs() {
  return {{"sum", "echo $(($1 ", " $2))\n", kSigns, 2, [](auto& v, auto& a) { return text(applied(v, a[0], a[1])); }},
          {"mul", "echo $(($1 * ", "))\n", kDigits, 1, [](auto& v, auto& a) { return text(a[0] * number(v)); }, "* "},
          {"inc", "echo $(($1 + ", "))\n", kDigits, 1, [](auto& v, auto& a) { return text(a[0] + number(v)); }, "+ "},
          {"say", "echo ", " $1\n", colours(), 1, [](auto& v, auto& a) { return v + " " + text(a[0]); }},
          {"top", "if [ $1 ", " $2 ]; then echo $1; else echo $2; fi\n", {"-gt", "-lt"}, 2, ends},
          {"ask", "if [ $1 ", " $2 ]; then echo yes; else echo no; fi\n", {"-gt", "-lt"}, 2, [](auto& v, auto& a) {
             return compare(v, a[0], a[1]);
           }}};
}

std::vector<Program> awk_programs() {
  return {{"sum", "{ print $1 ", " $2 }\n", kSigns, 2, [](auto& v, auto& a) { return text(applied(v, a[0], a[1])); }},
          {"mul", "{ print $1 * ", " }\n", kDigits, 1, [](auto& v, auto& a) { return text(a[0] * number(v)); }, "* "},
          {"inc", "{ print $1 + ", " }\n", kDigits, 1, [](auto& v, auto& a) { return text(a[0] + number(v)); }, "+ "},
          {"say", "{ print \"", "\", $1 }\n", colours(), 1, [](auto& v, auto& a) { return v + " " + text(a[0]); }},
          {"col",
           "{ print $",
           " }\n",
           {"1", "2", "3"},
           3,
           [](auto& v, auto& a) { return text(a[static_cast<size_t>(number(v) - 1)]); }},
          {"ask", "{ print ($1 ", " $2 ? \"yes\" : \"no\") }\n", {">", "<"}, 2, [](auto& v, auto& a) {
             return compare(v, a[0], a[1]);
           }}};
}

std::vector<Program> python_programs() {
  return {
      {"sum", "def f(a, b):\n    return a ", " b\n", kSigns, 2,
       [](auto& v, auto& a) { return text(applied(v, a[0], a[1])); }},
      {"mul", "def f(a):\n    return a * ", "\n", kDigits, 1, [](auto& v, auto& a) { return text(a[0] * number(v)); }},
      {"inc", "def f(a):\n    return a + ", "\n", kDigits, 1, [](auto& v, auto& a) { return text(a[0] + number(v)); }},
      {"say", "def f(a):\n    return '", "'\n", colours(), 1, [](auto& v, auto&) { return v; }},
      {"top", "def f(a, b):\n    return ", "(a, b)\n", {"max", "min"}, 2, ends},
      {"col", "def f(a, b, c):\n    return [a, b, c][", "]\n", {"0", "1", "2"}, 3, [](auto& v, auto& a) {
         return text(a[static_cast<size_t>(number(v))]);
       }}};
}

/// Arguments whose outputs tell right from wrong.
Arguments telling(kernels::RandomStream& random, const Program& program, const std::string& right,
                  const std::string& wrong) {
  for (;;) {
    Arguments arguments;
    for (size_t i = 0; i < program.arguments; ++i) arguments.push_back(1 + static_cast<int64_t>(random.below(9)));
    if (program.output(right, arguments) != program.output(wrong, arguments)) return arguments;
  }
}

std::string spaced(const Arguments& arguments, const char* between) {
  std::string out;
  for (const int64_t each : arguments) out += (out.empty() ? "" : between) + text(each);
  return out;
}

std::string sed_quoted(std::string pattern) {
  if (const size_t star = pattern.find('*'); star != std::string::npos) pattern.insert(star, "\\");
  const bool plain = pattern.find_first_of(" *<>|&;()$\\\"") == std::string::npos;
  return plain ? pattern : "'" + pattern + "'";
}

struct Language {
  std::string ending;
  std::function<std::string(const std::string& file, const Arguments&)> shown;  // how the issue says a run
  std::function<std::string(const std::string& file, const std::string& name, const Cases&)> script;  // the hidden test
  std::string test_file, test;
};

SmallTask draw_bug(kernels::RandomStream& random, const std::vector<Program>& programs, const Language& language) {
  const Program& program = pick(random, programs);
  // Files have a name of their own now and then, so that a name tells little about the bug.
  const std::string name = random.below(2) == 0 ? program.name : pick(random, animals());
  const std::string file = name + language.ending;
  const std::vector<std::string> values = pick_words(random, program.values, 2);
  const std::string &right = values[0], &wrong = values[1];
  SmallTask task;
  Cases cases;
  for (int i = 0; i < 3; ++i) {
    const Arguments arguments = telling(random, program, right, wrong);
    cases.emplace_back(arguments, program.output(right, arguments));
  }
  const Arguments& example = cases[0].first;
  task.issue = language.shown(file, example) + " gives " + program.output(wrong, example) + ", not " + cases[0].second;
  task.before = {{file, program.before + wrong + program.after}};
  task.after = {{file, program.before + right + program.after}};
  task.tests = {{language.test_file, language.script(file, name, cases)}};
  task.test = language.test;
  task.demonstration = {
      "cat " + file,
      "sed -i " + sed_quoted("s/" + program.left + wrong + "/" + program.left + right + "/") + " " + file};
  return task;
}

}  // namespace

SmallTask draw_bash(kernels::RandomStream& random) {
  const Language language{
      ".sh", [](const std::string& file, const Arguments& a) { return "bash " + file + " " + spaced(a, " "); },
      [](const std::string& file, const std::string&, const Cases& cases) {
        std::string script;
        for (const auto& [a, out] : cases)
          script += "[ \"$(bash " + file + " " + spaced(a, " ") + ")\" = '" + out + "' ] || exit 1\n";
        return script;
      },
      "test.sh", "sh test.sh"};
  return draw_bug(random, bash_programs(), language);
}

SmallTask draw_awk(kernels::RandomStream& random) {
  const Language language{
      ".awk", [](const std::string& file, const Arguments& a) { return file + " of " + spaced(a, " "); },
      [](const std::string& file, const std::string&, const Cases& cases) {
        std::string script;
        for (const auto& [a, out] : cases)
          script += "[ \"$(echo " + spaced(a, " ") + " | awk -f " + file + ")\" = '" + out + "' ] || exit 1\n";
        return script;
      },
      "test.sh", "sh test.sh"};
  return draw_bug(random, awk_programs(), language);
}

SmallTask draw_python(kernels::RandomStream& random) {
  const Language language{
      ".py", [](const std::string& file, const Arguments& a) { return file + " f(" + spaced(a, ", ") + ")"; },
      [](const std::string&, const std::string& name, const Cases& cases) {
        std::string script = "from " + name + " import f\n";
        for (const auto& [a, out] : cases) script += "assert str(f(" + spaced(a, ", ") + ")) == '" + out + "'\n";
        return script;
      },
      "test.py", "python3 test.py"};
  return draw_bug(random, python_programs(), language);
}

}  // namespace motley::envs
