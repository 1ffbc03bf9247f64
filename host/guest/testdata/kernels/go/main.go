// Tight loops that measure the cost of metering.
package main

var (
	table [4096]uint32
	flags [8192]bool
)

//go:wasmexport spin
func spin(n uint32) uint32 {
	x := n
	for range n {
		x = x*1664525 + 1013904223
	}
	return x
}

//go:wasmexport sum
func sum(n uint32) uint32 {
	s := uint32(0)
	for k := uint32(0); k < n; k += 4096 {
		for i := range table {
			s += table[i]
			table[i] = s ^ uint32(i)
		}
	}
	return s
}

func fibonacci(n uint32) uint32 {
	if n < 2 {
		return n
	}
	return fibonacci(n-1) + fibonacci(n-2)
}

//go:wasmexport fib
func fib(n uint32) uint32 { return fibonacci(n / 5000) }

//go:wasmexport sieve
func sieve(n uint32) uint32 {
	count := uint32(0)
	for k := uint32(0); k < n; k += 20000 {
		for i := range flags {
			flags[i] = true
		}
		for i := uint32(2); i < 8192; i++ {
			if !flags[i] {
				continue
			}
			count++
			for j := i * 2; j < 8192; j += i {
				flags[j] = false
			}
		}
	}
	return count
}

func main() {}
