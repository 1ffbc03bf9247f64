//go:build mutant_22

package raftgroup

const planted = 22
