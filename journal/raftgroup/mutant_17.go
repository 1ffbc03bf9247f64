//go:build mutant_17

package raftgroup

const planted = 17
