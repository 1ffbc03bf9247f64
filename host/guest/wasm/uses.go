package wasm

import "fmt"

// uses is what a module's code uses.
type uses struct {
	// Bulk are the bulk instructions, and Referenced the functions that code
	// makes references to, each once; the indices have the places there.
	Bulk           []BulkUse
	bulkIndex      map[BulkUse]int
	Referenced     []uint32
	referenceIndex map[uint32]int

	named map[uint32]bool // functions that exports, globals or elements name
}

// BulkUse names a bulk instruction, one that does an unbounded amount of work
// at once, and what it works on.
type BulkUse struct {
	Op   byte
	Sub  uint32
	A, B uint32
}

// Bulk reports whether it is a bulk instruction.
func (i *Instruction) Bulk() bool {
	if i.Op != OpMisc {
		return i.Op == OpMemoryGrow
	}
	switch i.Sub {
	case MiscMemoryInit, MiscMemoryCopy, MiscMemoryFill, MiscTableInit, MiscTableCopy, MiscTableGrow, MiscTableFill:
		return true
	}
	return false
}

const (
	// maxBulkUses bounds the functions that metering adds; each data or element
	// segment that a module names by an instruction needs one.
	maxBulkUses = 4_096
	// maxReferenced bounds the functions that code makes references to.
	maxReferenced = 4_096
)

// use notes what of the module an instruction uses.
func (m *Module) use(c *Cursor, i *Instruction) {
	switch i.Op {
	case OpRefFunc:
		m.useReference(c, i.A)
	case OpTableSet:
		m.opaque = true
	case OpMemoryGrow, OpMisc:
		if i.Bulk() {
			m.useBulk(c, i)
		}
		m.opaque = m.opaque || i.Op == OpMisc && i.Sub >= MiscTableInit && i.Sub != MiscTableSize
	}
}

// useBulk notes that code has this bulk instruction.
func (m *Module) useBulk(c *Cursor, i *Instruction) {
	tables := []uint32{}
	switch i.Sub {
	case MiscTableInit:
		tables = []uint32{i.B}
	case MiscTableCopy:
		tables = []uint32{i.A, i.B}
	case MiscTableGrow, MiscTableFill:
		tables = []uint32{i.A}
	}
	for _, table := range tables {
		if i.Op == OpMisc && int64(table) >= int64(len(m.Tables)) {
			c.damaged(fmt.Sprintf("no table %d", table))
			return
		}
	}
	use := BulkUse{Op: i.Op, Sub: i.Sub, A: i.A, B: i.B}
	if _, known := m.bulkIndex[use]; known {
		return
	}
	if len(m.Bulk) == maxBulkUses {
		c.Refuse("bulk instructions name more than %d segments", maxBulkUses)
		return
	}
	if m.bulkIndex == nil {
		m.bulkIndex = map[BulkUse]int{}
	}
	m.bulkIndex[use] = len(m.Bulk)
	m.Bulk = append(m.Bulk, use)
}

// BulkNumber is the number in bulk of an instruction of the module.
func (m *Module) BulkNumber(i *Instruction) int {
	return m.bulkIndex[BulkUse{Op: i.Op, Sub: i.Sub, A: i.A, B: i.B}]
}

// useReference notes that code makes a reference to a function. The runtime
// makes another one whenever it comes to the instruction, and keeps all of them
// as long as the instance: a loop of it would take memory for as long as it
// has fuel. So each instance gets one for each function, in a global that
// stands in for the instruction.
//
// As the format asks, the function is one that the module names outside of its
// code: the global would name it in any case.
func (m *Module) useReference(c *Cursor, function uint32) {
	if !m.named[function] {
		c.Refuse("makes a reference to function %d, which no export, global or element segment names; declare it in an element segment", function)
		return
	}
	if _, known := m.referenceIndex[function]; known {
		return
	}
	if len(m.Referenced) == maxReferenced {
		c.Refuse("code makes references to more than %d functions; split the module", maxReferenced)
		return
	}
	if m.referenceIndex == nil {
		m.referenceIndex = map[uint32]int{}
	}
	m.referenceIndex[function] = len(m.Referenced)
	m.Referenced = append(m.Referenced, function)
}

// ReferenceNumber is the number in referenced of a function that code makes a
// reference to.
func (m *Module) ReferenceNumber(function uint32) int { return m.referenceIndex[function] }

// nameFunction notes that a function is named outside of code, by an export, a
// global or an element: it can be reached in another way than by a call of its
// index, and code may make references to it.
func (m *Module) nameFunction(index uint32) {
	if m.named == nil {
		m.named = map[uint32]bool{}
	}
	m.named[index] = true
}

// IsNamed reports whether nameFunction was told of a function.
func (m *Module) IsNamed(index uint32) bool { return m.named[index] }
