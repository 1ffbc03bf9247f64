// Tight loops, to measure what metering costs. Built by
// asc kernels.ts -O3 --runtime incremental --noAssert --use abort= --exportStart _initialize
const table = new StaticArray<u32>(4096);
const flags = new StaticArray<u8>(8192);

export function spin(n: u32): u32 {
  let x = n;
  for (let i: u32 = 0; i < n; i++) x = x * 1664525 + 1013904223;
  return x;
}

export function sum(n: u32): u32 {
  let s: u32 = 0;
  for (let k: u32 = 0; k < n; k += 4096) {
    for (let i: u32 = 0; i < 4096; i++) {
      s += table[i];
      table[i] = s ^ i;
    }
  }
  return s;
}

function fibonacci(n: u32): u32 {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

export function fib(n: u32): u32 {
  return fibonacci(n / 5000);
}

export function sieve(n: u32): u32 {
  let count: u32 = 0;
  for (let k: u32 = 0; k < n; k += 20000) {
    for (let i: u32 = 0; i < 8192; i++) flags[i] = 1;
    for (let i: u32 = 2; i < 8192; i++) {
      if (!flags[i]) continue;
      count++;
      for (let j = i * 2; j < 8192; j += i) flags[j] = 0;
    }
  }
  return count;
}
