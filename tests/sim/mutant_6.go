//go:build mutant_6

package sim

const planted = 6
