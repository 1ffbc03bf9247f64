// Tight loops, to measure what metering costs. Built by
// rustc --target wasm32-unknown-unknown -C opt-level=3 -C panic=abort -C lto=fat --crate-type cdylib
static mut TABLE: [u32; 4096] = [0; 4096];

#[no_mangle]
pub extern "C" fn spin(n: u32) -> u32 {
    let mut x = n;
    for _ in 0..n {
        x = x.wrapping_mul(1664525).wrapping_add(1013904223);
    }
    x
}

#[no_mangle]
pub extern "C" fn sum(n: u32) -> u32 {
    let table = unsafe { &mut *std::ptr::addr_of_mut!(TABLE) };
    let mut s = 0u32;
    for _ in 0..(n + 4095) / 4096 {
        for (i, v) in table.iter_mut().enumerate() {
            s = s.wrapping_add(*v);
            *v = s ^ i as u32;
        }
    }
    s
}

fn fibonacci(n: u32) -> u32 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[no_mangle]
pub extern "C" fn fib(n: u32) -> u32 {
    fibonacci(n / 5000)
}

#[no_mangle]
pub extern "C" fn sieve(n: u32) -> u32 {
    let mut count = 0;
    for _ in 0..(n + 19999) / 20000 {
        let mut flags = vec![true; 8192];
        for i in 2..8192 {
            if !flags[i] {
                continue;
            }
            count += 1;
            let mut j = i * 2;
            while j < 8192 {
                flags[j] = false;
                j += i;
            }
        }
    }
    count
}
