// What tests of sandboxes share: a host, or a visible line where this machine cannot make sandboxes.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "envs/sandbox/sandbox.h"

namespace motley::envs {

/// Null, with a warning that Catch always prints, where sandboxes cannot be made. `use_cgroups` as in SandboxHost.
inline SandboxHost* sandbox_host(bool use_cgroups = true) {
  struct Hosts {
    std::unique_ptr<SandboxHost> host;
    std::string why_not;
    explicit Hosts(bool use_cgroups) try : host(std::make_unique<SandboxHost>(use_cgroups)) {
      Sandbox trial(*host);
    } catch (const SandboxError& error) {
      why_not = error.what();
    }
  };
  static Hosts with(true), without(false);
  Hosts& hosts = use_cgroups ? with : without;
  if (!hosts.why_not.empty()) {
    WARN("SKIPPED, this machine makes no sandboxes: " << hosts.why_not);
    return nullptr;
  }
  return hosts.host.get();
}

inline TreeEntry file(const std::string& content) { return {TreeEntry::Kind::file, false, content}; }
inline TreeEntry executable(const std::string& content) { return {TreeEntry::Kind::file, true, content}; }
inline TreeEntry link_to(const std::string& target) { return {TreeEntry::Kind::link, false, target}; }
inline TreeEntry folder() { return {TreeEntry::Kind::folder, false, ""}; }

}  // namespace motley::envs
