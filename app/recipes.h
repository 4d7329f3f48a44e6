// Recipes: published methods by name. `algo.recipe = "dapo"` gives the keys that the method concerns their defaults;
// keys that the file or --set gives win.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/document.h"

namespace motley::app {

struct Recipe {
  std::string name, summary, source;
  /// Dotted path and value as TOML; the correction before its parameters.
  std::vector<std::pair<std::string, std::string>> keys;
};
const std::vector<Recipe>& recipes();
std::vector<std::string> recipe_names();

/// Enters the keys of the recipe that `document` names and that it does not have. Parameters of the recipe's correction
/// stay out if the document names another correction. An unknown name is left to the loader, which refuses it.
void apply_recipe(Node& document);

}  // namespace motley::app
