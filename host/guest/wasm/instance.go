package wasm

import "slices"

// What the runtime holds for each part of an instance, at most. An allocation
// of it counts with what Go's allocator rounds it up to, a slice that it
// appends to with the room that growing leaves.
const (
	elementBytes   = 8  // an element of a table or of a passive segment
	referenceBytes = 56 // a reference to a function, made for each instance that names one
	globalBytes    = 112
	segmentBytes   = 24 // of elements, or of data that the runtime was given
	tableBytes     = 128
	tableExport    = 24 // an export of a table; others are the module's alone
)

// elementSegment is what fills tables.
type elementSegment struct {
	passive    bool // or declarative: in no table before code asks for it
	elements   int
	references int // of these, to functions
}

// Copied reports whether code copies a passive segment into a table. One that
// it does not is prepared as declarative, and no instance has it.
func (m *Module) Copied(segment int) bool {
	return slices.ContainsFunc(m.Bulk, func(u BulkUse) bool {
		return u.Op == OpMisc && u.Sub == MiscTableInit && int64(u.A) == int64(segment)
	})
}

// growsTables reports whether the module has an instruction to.
func (m *Module) growsTables() bool {
	return slices.ContainsFunc(m.Bulk, func(u BulkUse) bool { return u.Op == OpMisc && u.Sub == MiscTableGrow })
}

// held is what an instance holds at most, besides its linear memory and
// what each takes.
func (m *Module) held() int64 {
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
		if s.passive && !m.Copied(i) {
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

// maxRestoredGlobals bounds what a module's code is made to export.
const maxRestoredGlobals = 256

// Restorable reports whether the state of an instance is its memory and the
// globals in mutable.
func (m *Module) Restorable() bool {
	return !m.opaque && m.DataCount < 0 && len(m.Mutable) <= maxRestoredGlobals
}
