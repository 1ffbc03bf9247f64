//go:build mutant_13

package sim

const planted = 13
