//go:build mutant_1

package sim

const planted = 1
