#include "actors/version.h"

namespace motley::actors {

std::string version() { return MOTLEY_VERSION; }  // of the project: CMakeLists.txt

}  // namespace motley::actors
