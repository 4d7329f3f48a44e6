#!/usr/bin/env bash
# Makes the peers' Python: PyTorch, llama-cpp-python and the GGUF writer from PyPI, into a scratch folder.
#   tests/bench/peers/venv.sh FOLDER
# llama-cpp-python is compiled from its sources on this machine: it takes a C++ compiler and some minutes.
set -euo pipefail
venv=${1:?"usage: venv.sh FOLDER"}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
fi
need() { "$venv/bin/python" -c "import $1" 2>/dev/null || "$venv/bin/pip" install -q "$2" >&2; }
need torch torch
need llama_cpp llama-cpp-python
need gguf gguf
