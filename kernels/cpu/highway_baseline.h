// Included before any header of Highway: makes AVX2 with fused multiply-add its baseline. Without this, Highway counts
// AES among AVX2's needs, which -march=x86-64-v3 does not promise, and falls back to vectors that round twice.
#pragma once

#define HWY_DISABLE_PCLMUL_AES
