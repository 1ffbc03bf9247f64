//go:build mutant_15

package raftgroup

const planted = 15
