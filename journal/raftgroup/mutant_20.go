//go:build mutant_20

package raftgroup

const planted = 20
