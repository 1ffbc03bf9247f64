//go:build mutant_4

package raftgroup

const planted = 4
