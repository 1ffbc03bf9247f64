package engine

import "fmt"

// A bulk instruction does an unbounded amount of work at once. Each is
// replaced by a call of a function that charges for the amount first, and does
// more than bulkChunk bytes in chunks with a check before each: nothing can
// stop the machine inside one.
const bulkChunk = 256 << 10

// Weights of bulk instructions.
const (
	weightBulk       = 16    // of each, beyond its amount
	bytesPerUnit     = 8     // of memory.fill, memory.copy and memory.init
	bytesPerUnitLog2 = 3     // the same, as a shift
	weightElement    = 1     // an element of table.fill, table.copy, table.init
	weightGrow       = 2_000 // memory.grow and table.grow, which are calls of the host
	weightPage       = 8_192 // a page of memory.grow: its 16 pages of the machine are made when touched
	weightNewElement = 8     // an element of table.grow
)

// bulkUse names a bulk instruction and what it works on.
type bulkUse struct {
	op   byte
	sub  uint32
	a, b uint32
}

// bulk reports whether an instruction behind opMisc is replaced.
func bulk(sub uint32) bool {
	switch sub {
	case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy, miscTableGrow, miscTableFill:
		return true
	}
	return false
}

// maxBulkUses bounds the functions added; each data or element segment that a
// module names by an instruction needs one.
const maxBulkUses = 4_096

// useBulk notes that the module has this bulk instruction.
func (p *planner) useBulk(i *instruction) {
	m := p.m
	tables := []uint32{}
	switch i.sub {
	case miscTableInit:
		tables = []uint32{i.b}
	case miscTableCopy:
		tables = []uint32{i.a, i.b}
	case miscTableGrow, miscTableFill:
		tables = []uint32{i.a}
	}
	for _, table := range tables {
		if i.op == opMisc && int64(table) >= int64(len(m.tables)) {
			p.where.damaged(fmt.Sprintf("no table %d", table))
			return
		}
	}
	use := bulkUse{i.op, i.sub, i.a, i.b}
	if _, known := m.bulkIndex[use]; known {
		return
	}
	if len(m.bulk) == maxBulkUses {
		p.where.refuse("bulk instructions name more than %d segments", maxBulkUses)
		return
	}
	if m.bulkIndex == nil {
		m.bulkIndex = map[bulkUse]int{}
	}
	m.bulkIndex[use] = len(m.bulk)
	m.bulk = append(m.bulk, use)
}

// bulkIndex is the function that stands in for i.
func (r *rewriter) bulkIndex(i *instruction) uint32 {
	return r.settle + 1 + uint32(r.m.bulkIndex[bulkUse{i.op, i.sub, i.a, i.b}])
}

// bulkSignature is the type of the function, which is that of the instruction.
func (m *parsedModule) bulkSignature(u bulkUse) signature {
	switch {
	case u.op == opMemoryGrow:
		return signature{i32, i32}
	case u.sub == miscTableGrow:
		return signature{string(m.tables[u.a].element) + i32, i32}
	case u.sub == miscTableFill:
		return signature{i32 + string(m.tables[u.a].element) + i32, ""}
	}
	return signature{i32 + i32 + i32, ""}
}

// bulkBody is the body of the function, without locals.
func (w *metering) bulkBody(u bulkUse) []byte {
	c := &code{}
	switch {
	case u.op == opMemoryGrow:
		w.growMemory(c)
	case u.sub == miscTableGrow:
		w.chargeAmount(c, 1, weightGrow, weightNewElement)
		c.index(opLocalGet, 0)
		c.index(opLocalGet, 1)
		appendOriginal(c, u)
	case u.sub == miscTableInit || u.sub == miscTableCopy || u.sub == miscTableFill:
		w.chargeAmount(c, 2, weightBulk, weightElement)
		bulkOperands(c)
		appendOriginal(c, u)
	default:
		(&chunks{metering: w, code: c, use: u}).body()
	}
	return c.bytes
}

func appendOriginal(c *code, u bulkUse) {
	i := &instruction{op: u.op, sub: u.sub, a: u.a, b: u.b}
	c.bytes = appendInstruction(c.bytes, nil, i)
}

func bulkOperands(c *code) {
	for local := range uint32(3) {
		c.index(opLocalGet, local)
	}
}

// growMemory charges for pages once they are there: a guest that asks for
// what it does not get pays for the question.
func (w *metering) growMemory(c *code) {
	w.charge(c, weightGrow)
	w.check(c)
	c.index(opLocalGet, 0)
	c.emit(opMemoryGrow, 0)
	c.index(opLocalTee, 1)
	c.i32(-1)
	c.emit(opI32Ne, opIf, blockVoid)
	c.index(opGlobalGet, w.fuel)
	c.index(opLocalGet, 0)
	c.emit(opI64ExtendU)
	c.i64(weightPage)
	c.emit(opI64Mul, opI64Sub)
	c.index(opGlobalSet, w.fuel)
	w.check(c)
	c.emit(opEnd)
	c.index(opLocalGet, 1)
}

// chargeAmount charges for a number of elements of a table, which is in a
// local. A number beyond what a table can hold fails, whatever it is.
func (w *metering) chargeAmount(c *code, local, base, each uint32) {
	const most = 1 << 16
	c.index(opGlobalGet, w.fuel)
	c.index(opLocalGet, local)
	c.i32(most)
	c.index(opLocalGet, local)
	c.i32(most)
	c.emit(opI32LtU, opSelect, opI64ExtendU)
	c.i64(int64(each))
	c.emit(opI64Mul)
	c.i64(int64(base))
	c.emit(opI64Add, opI64Sub)
	c.index(opGlobalSet, w.fuel)
	w.check(c)
}
