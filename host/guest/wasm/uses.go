package wasm

import "fmt"

// uses lists the bulk instructions and the function references in a module's
// code.
type uses struct {
	// Bulk lists the bulk instructions, and Referenced the functions to which code
	// creates references, each once. The maps hold their positions.
	Bulk           []bulkUse
	bulkIndex      map[bulkUse]int
	Referenced     []uint32
	referenceIndex map[uint32]int

	named map[uint32]bool // functions named by exports, globals or elements
}

// bulkUse identifies a bulk instruction, which does an unbounded amount of
// work, and its operands.
type bulkUse struct {
	Op   byte
	Sub  uint32
	A, B uint32
}

// bulk reports whether i is a bulk instruction.
func (i *Instruction) bulk() bool {
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
	// maxBulkUses bounds the functions that metering adds. Each data or element
	// segment that an instruction names needs an added function.
	maxBulkUses = 4_096
	// maxReferenced bounds the functions to which code creates references.
	maxReferenced = 4_096
)

// use records the bulk instruction or function reference that an instruction
// is, if any.
func (m *Module) use(c *Cursor, i *Instruction) {
	switch i.Op {
	case OpRefFunc:
		m.useReference(c, i.A)
	case OpTableSet:
		m.opaque = true
	case OpMemoryGrow, OpMisc:
		if i.bulk() {
			m.useBulk(c, i)
		}
		m.opaque = m.opaque || i.Op == OpMisc && i.Sub >= MiscTableInit && i.Sub != MiscTableSize
	}
}

// useBulk records a bulk instruction.
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
			c.refuseDamaged(fmt.Sprintf("no table %d", table))
			return
		}
	}
	use := bulkUse{Op: i.Op, Sub: i.Sub, A: i.A, B: i.B}
	if _, known := m.bulkIndex[use]; known {
		return
	}
	if len(m.Bulk) == maxBulkUses {
		c.Refuse("bulk instructions name more than %d segments", maxBulkUses)
		return
	}
	if m.bulkIndex == nil {
		m.bulkIndex = map[bulkUse]int{}
	}
	m.bulkIndex[use] = len(m.Bulk)
	m.Bulk = append(m.Bulk, use)
}

// bulkNumber returns the position of an instruction in Bulk.
func (m *Module) bulkNumber(i *Instruction) int {
	return m.bulkIndex[bulkUse{Op: i.Op, Sub: i.Sub, A: i.A, B: i.B}]
}

// useReference records that code creates a reference to a function (ref.func).
// The runtime allocates a new reference each time the instruction runs and
// keeps it as long as the instance, so a loop could allocate memory as long as it
// has fuel. Therefore each instance creates one reference for each function, in
// a global that replaces the instruction.
//
// As the format requires, the module must name the function outside of its
// code. The host checks that, because the added global names the function in
// any case.
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

// referenceNumber returns the position of a function in Referenced.
func (m *Module) referenceNumber(function uint32) int { return m.referenceIndex[function] }

// nameFunction records that an export, a global or an element names a function.
// Such a function can be reached other than by a direct call, and code may
// create references to it.
func (m *Module) nameFunction(index uint32) {
	if m.named == nil {
		m.named = map[uint32]bool{}
	}
	m.named[index] = true
}

// isNamed reports whether nameFunction has recorded a function.
func (m *Module) isNamed(index uint32) bool { return m.named[index] }
