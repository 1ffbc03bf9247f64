//go:build mutant_3

package raftgroup

const planted = 3
