//go:build mutant_21

package raftgroup

const planted = 21
