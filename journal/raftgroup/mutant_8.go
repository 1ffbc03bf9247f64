//go:build mutant_8

package raftgroup

const planted = 8
