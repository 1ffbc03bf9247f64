//go:build !mutant_72

package deliver

// early says whether a send is acknowledged before its destination has it.
const early = false
