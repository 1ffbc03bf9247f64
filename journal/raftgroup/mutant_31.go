//go:build mutant_31

package raftgroup

const planted = 31
