//go:build !mutant_3 && !mutant_6 && !mutant_8 && !mutant_12 && !mutant_15 && !mutant_17 && !mutant_20 && !mutant_21 && !mutant_22 && !mutant_30 && !mutant_31

package raftgroup

// planted is the number of the fault built in on purpose; the simulator must
// find each of them. No release has one.
const planted = 0
