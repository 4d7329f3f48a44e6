#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "kernels/product_body.h"
#include "tests/kernels/device_cases.h"

namespace motley::kernels {
namespace {

/// The functions that a header declares in `namespace <name> {`, in order.
std::vector<std::string> declared(const std::string& header, const std::string& name) {
  static const std::regex function("^[A-Za-z][\\w:<>,* ]* \\*?(\\w+)\\(.*");
  std::vector<std::string> found;
  std::istringstream in(header);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "namespace " + name + " {") inside = true;
    if (line.starts_with("}  // namespace " + name)) inside = false;
    std::smatch match;
    if (!inside || !std::regex_match(line, match, function)) continue;
    if (std::find(found.begin(), found.end(), match[1]) == found.end()) found.push_back(match[1]);
  }
  return found;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Row {
  std::string kernel, header;
  bool cpu = false, emulated = false, cuda = false;
};
std::vector<Row> declarations(const std::string& source_folder) {
  std::vector<std::filesystem::path> headers;
  for (const auto& entry : std::filesystem::directory_iterator(source_folder + "/kernels"))
    if (entry.path().extension() == ".h" && entry.path().filename() != "device_memory.h")
      headers.push_back(entry.path());
  std::sort(headers.begin(), headers.end());
  std::vector<Row> rows;
  for (const auto& path : headers) {
    const std::string header = text_of(path);
    const std::vector<std::string> emulated = declared(header, "emulated"), cuda = declared(header, "cuda");
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    std::vector<std::string> names = declared(header, "cpu");
    for (const std::string& name : emulated)
      if (!has(names, name)) names.push_back(name);
    for (const std::string& name : names)
      rows.push_back({name, "kernels/" + path.filename().string(), has(declared(header, "cpu"), name),
                      has(emulated, name), has(cuda, name)});
  }
  return rows;
}

}  // namespace

std::string support_page(const std::string& source_folder) {
  std::ostringstream page;
  page
      << "# Kernels by device\n\n"
         "Written by `make ops` from the declarations under `kernels/` and from the table of test cases\n"
         "(`tests/kernels/device_cases.h`); a test sees that it is current. `emulated` is the CUDA source compiled for "
         "the\nhost; the CUDA bodies are in a build with `MOTLEY_CUDA`, and `motley doctor` says whether this one "
         "is.\n\n"
         "| kernel | declared in | cpu | emulated | cuda |\n|---|---|---|---|---|\n";
  const auto mark = [](bool there) { return there ? "yes" : "-"; };
  const std::vector<Row> rows = declarations(source_folder);
  for (const Row& row : rows)
    page << "| " << row.kernel << " | " << row.header << " | " << mark(row.cpu) << " | " << mark(row.emulated) << " | "
         << mark(row.cuda) << " |\n";
  page << "\nWhat computes the products of a profile's linear layers on a GPU and on `emulated` "
          "(`kernels/product_body.h`):\n`matmul`, a chain with the CPU's bits; `matmul_units` on matrix units, with "
          "bits "
          "of its own; or the model of Hopper's\naccumulation, `hopper_fp8_product`, with the CPU's bits.\n\n"
          "| profile | products |\n|---|---|\n";
  for (const NumericProfile& profile : profiles())
    page << "| " << profile.name << " | " << product_body_name(product_body(profile, {DeviceKind::cuda, 0})) << " |\n";
  page << "\nCases of the kernels on devices, by type, and what the emulated and the CUDA body must give in each: the "
          "CPU's\nbits, or a result within a stated bound of float64 and the same bits in every order of blocks, warps "
          "and lanes.\n\n| kernel | type | cases | must give |\n|---|---|---|---|\n";
  std::vector<std::pair<std::string, int>> counts;
  std::map<std::string, bool> bounded;
  for (const DeviceCase& c : device_cases()) {
    const std::string key = "| " + c.kernel + " | " + c.type + " | ";
    bounded.emplace(key, !c.cpu_bits);
    const auto found =
        std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == key; });
    if (found == counts.end())
      counts.emplace_back(key, 1);
    else
      ++found->second;
  }
  std::sort(counts.begin(), counts.end());
  for (const auto& [key, count] : counts)
    page << key << count << (bounded.at(key) ? " | bound, own bits |\n" : " | bits |\n");
  return page.str();
}

}  // namespace motley::kernels
