//go:build mutant_72

package deliver

// early is a planted fault: a send is acknowledged as soon as it is handed on.
const early = true
