package wasm

import "slices"

// Maximum bytes that the runtime holds for each part of an instance.
// Allocations are rounded up to Go's size classes, and slices that the runtime
// appends to include the spare capacity that growing leaves.
const (
	elementBytes   = 8  // an element of a table or of a passive segment
	referenceBytes = 56 // a reference to a function, created for each instance that contains one
	globalBytes    = 112
	segmentBytes   = 24 // an element segment, or a data segment given to the runtime
	tableBytes     = 128
	tableExport    = 24 // an exported table; exports of other kinds are part of the module
)

// elementSegment is an element segment, which fills tables.
type elementSegment struct {
	passive    bool // the segment is passive or declarative: code must copy it into a table
	elements   int
	references int // elements that refer to functions
}

// copiesSegment reports whether code copies a passive segment into a table. Otherwise
// preparing makes the segment declarative, so that instances do not hold it.
func (m *Module) copiesSegment(segment int) bool {
	return slices.ContainsFunc(m.Bulk, func(u bulkUse) bool {
		return u.Op == OpMisc && u.Sub == MiscTableInit && int64(u.A) == int64(segment)
	})
}

// growsTables reports whether the module contains table.grow.
func (m *Module) growsTables() bool {
	return slices.ContainsFunc(m.Bulk, func(u bulkUse) bool { return u.Op == OpMisc && u.Sub == MiscTableGrow })
}

// heldBytes returns the maximum bytes that an instance holds besides its linear
// memory and the fixed cost of every instance.
func (m *Module) heldBytes() int64 {
	grows := m.growsTables()
	sum := 0
	for _, t := range m.Tables {
		elements := t.Min
		if grows {
			elements = t.Max
		}
		sum += tableBytes + elementBytes*int(elements)
	}
	for i, s := range m.segments {
		sum += segmentBytes
		if s.passive && !m.copiesSegment(i) {
			continue
		}
		if s.passive {
			sum += elementBytes * s.elements
		}
		sum += referenceBytes * s.references
	}
	sum += globalBytes*(m.Globals+len(m.Referenced)) + referenceBytes*(m.globalReferences+len(m.Referenced))
	sum += segmentBytes * m.data
	for _, e := range m.Exports {
		if e.Kind == KindTable {
			sum += tableExport
		}
	}
	return int64(sum)
}

// maxRestoredGlobals bounds the globals that a module is made to export.
const maxRestoredGlobals = 256

// Restorable reports whether the state of an instance consists of its memory
// and the globals in Mutable.
func (m *Module) Restorable() bool {
	return !m.opaque && m.DataCount < 0 && len(m.Mutable) <= maxRestoredGlobals
}
