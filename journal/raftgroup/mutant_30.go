//go:build mutant_30

package raftgroup

const planted = 30
