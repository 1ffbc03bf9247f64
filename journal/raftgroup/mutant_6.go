//go:build mutant_6

package raftgroup

const planted = 6
