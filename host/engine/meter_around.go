//go:build !mutant_81

package engine

// reachedAround reports whether a path may come to the frame's end without
// passing the last middle point inside it; points is how many its region has
// by then.
func (f *frame) reachedAround(points int) bool {
	return points != f.points && (f.targeted || f.kind == frameIf)
}
