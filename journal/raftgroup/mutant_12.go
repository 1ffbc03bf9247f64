//go:build mutant_12

package raftgroup

const planted = 12
