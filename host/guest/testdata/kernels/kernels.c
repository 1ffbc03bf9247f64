// Tight loops, to measure what metering costs. Built by
// clang --target=wasm32 -O2 -nostdlib -fno-builtin -Wl,--no-entry -Wl,--strip-all
typedef unsigned int u32;
typedef unsigned long long u64;
#define EXPORT(name) __attribute__((export_name(#name))) u32 name

static u32 table[4096];
static unsigned char flags[8192];

EXPORT(spin)(u32 n) {
  u32 x = n;
  for (u32 i = 0; i < n; i++) x = x * 1664525 + 1013904223;
  return x;
}

EXPORT(sum)(u32 n) {
  u32 s = 0;
  for (u32 k = 0; k < n; k += 4096)
    for (u32 i = 0; i < 4096; i++) { s += table[i]; table[i] = s ^ i; }
  return s;
}

static u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
EXPORT(fib)(u32 n) { return fibonacci(n / 5000); }

EXPORT(sieve)(u32 n) {
  u32 count = 0;
  for (u32 k = 0; k < n; k += 20000) {
    for (u32 i = 0; i < 8192; i++) flags[i] = 1;
    for (u32 i = 2; i < 8192; i++) {
      if (!flags[i]) continue;
      count++;
      for (u32 j = i * 2; j < 8192; j += i) flags[j] = 0;
    }
  }
  return count;
}

EXPORT(machine)(u32 n) {
  static const unsigned char program[] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 2, 4, 6, 1, 3, 5, 8};
  u32 a = 1, b = 2, pc = 0;
  for (u32 i = 0; i < n; i++) {
    switch (program[pc++]) {
    case 0: a += b; break;
    case 1: b ^= a; break;
    case 2: a -= 3; break;
    case 3: b = b << 3 | b >> 29; break;
    case 4: table[a & 4095] = b; break;
    case 5: a = table[b & 4095]; break;
    case 6: a *= 5; break;
    case 7: b += i; break;
    case 8: pc = 0; break;
    }
  }
  return a ^ b;
}
