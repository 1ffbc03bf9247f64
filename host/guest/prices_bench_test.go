package guest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// priced is an instruction whose cost is measured: code takes params from the
// stack and leaves a result. Types of values are one byte each: i and l are i32
// and i64, f and d are f32 and f64, v is a vector.
type priced struct {
	name   string
	code   []byte
	params string
	result byte
}

// numeric lists the instructions that only compute with numbers and vectors.
func numeric() (all []priced) {
	add := func(prefix byte, from, to int, params string, result byte, operands ...byte) {
		for sub := from; sub <= to; sub++ {
			code, name := []byte{byte(sub)}, fmt.Sprintf("%02x", sub)
			if prefix != 0 {
				code, name = cat([]byte{prefix}, uleb(uint64(sub))), fmt.Sprintf("%02x %02x", prefix, sub)
			}
			all = append(all, priced{name, append(code, operands...), params, result})
		}
	}
	for _, s := range []struct {
		from, to int
		params   string
		result   byte
	}{
		{0x45, 0x45, "i", 'i'}, {0x46, 0x4f, "ii", 'i'}, {0x50, 0x50, "l", 'i'}, {0x51, 0x5a, "ll", 'i'}, {0x5b, 0x60, "ff", 'i'},
		{0x61, 0x66, "dd", 'i'}, {0x67, 0x69, "i", 'i'}, {0x6a, 0x78, "ii", 'i'}, {0x79, 0x7b, "l", 'l'}, {0x7c, 0x8a, "ll", 'l'},
		{0x8b, 0x91, "f", 'f'}, {0x92, 0x98, "ff", 'f'}, {0x99, 0x9f, "d", 'd'}, {0xa0, 0xa6, "dd", 'd'}, {0xa7, 0xa7, "l", 'i'},
		{0xa8, 0xa9, "f", 'i'}, {0xaa, 0xab, "d", 'i'}, {0xac, 0xad, "i", 'l'}, {0xae, 0xaf, "f", 'l'}, {0xb0, 0xb1, "d", 'l'},
		{0xb2, 0xb3, "i", 'f'}, {0xb4, 0xb5, "l", 'f'}, {0xb6, 0xb6, "d", 'f'}, {0xb7, 0xb8, "i", 'd'}, {0xb9, 0xba, "l", 'd'},
		{0xbb, 0xbb, "f", 'd'}, {0xbc, 0xbc, "f", 'i'}, {0xbd, 0xbd, "d", 'l'}, {0xbe, 0xbe, "i", 'f'}, {0xbf, 0xbf, "l", 'd'},
		{0xc0, 0xc1, "i", 'i'}, {0xc2, 0xc4, "l", 'l'},
	} {
		add(0, s.from, s.to, s.params, s.result)
	}
	for i, s := range []string{"fi", "di", "fl", "dl"} {
		add(opMisc, 2*i, 2*i+1, s[:1], s[1])
	}
	add(wasm.OpVector, 0x0d, 0x0d, "vv", 'v', 3, 17, 1, 30, 5, 19, 7, 21, 0, 9, 25, 11, 27, 13, 29, 2)
	add(wasm.OpVector, 0x0e, 0x0e, "vv", 'v')
	for i, scalar := range []byte("iiilfd") {
		add(wasm.OpVector, 0x0f+i, 0x0f+i, string(scalar), 'v')
	}
	lane := 0x15
	for _, s := range []struct {
		extracts int
		scalar   byte
	}{{2, 'i'}, {2, 'i'}, {1, 'i'}, {1, 'l'}, {1, 'f'}, {1, 'd'}} {
		add(wasm.OpVector, lane, lane+s.extracts-1, "v", s.scalar, 1)
		add(wasm.OpVector, lane+s.extracts, lane+s.extracts, "v"+string(s.scalar), 'v', 1)
		lane += s.extracts + 1
	}
	one := []int{0x4d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x67, 0x68, 0x69, 0x6a, 0x74, 0x75, 0x7a, 0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81,
		0x87, 0x88, 0x89, 0x8a, 0x94, 0xa0, 0xa1, 0xa7, 0xa8, 0xa9, 0xaa, 0xc0, 0xc1, 0xc7, 0xc8, 0xc9, 0xca, 0xe0, 0xe1, 0xe3, 0xec, 0xed, 0xef,
		0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff}
	tests := []int{0x53, 0x63, 0x64, 0x83, 0x84, 0xa3, 0xa4, 0xc3, 0xc4}
	shifts := []int{0x6b, 0x6c, 0x6d, 0x8b, 0x8c, 0x8d, 0xab, 0xac, 0xad, 0xcb, 0xcc, 0xcd}
	unused := []int{0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6, 0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee}
	for sub := 0x23; sub <= 0xff; sub++ {
		switch {
		case slices.Contains(unused, sub):
		case slices.Contains(one, sub):
			add(wasm.OpVector, sub, sub, "v", 'v')
		case slices.Contains(tests, sub):
			add(wasm.OpVector, sub, sub, "v", 'i')
		case slices.Contains(shifts, sub):
			add(wasm.OpVector, sub, sub, "vi", 'v')
		case sub == 0x52:
			add(wasm.OpVector, sub, sub, "vvv", 'v')
		default:
			add(wasm.OpVector, sub, sub, "vv", 'v')
		}
	}
	return all
}

// back converts a result to the type of the first operand, so that each
// instruction waits for the result of the previous instruction.
var back = map[string][]byte{
	"il": {opI64ExtendU}, "li": {opI32WrapI64}, "if": {0xbe}, "fi": {0xbc}, "ld": {0xbf}, "dl": {0xbd},
	"iv": {wasm.OpVector, 0x11}, "vi": {wasm.OpVector, 0x1b, 0}, "lv": {wasm.OpVector, 0x12}, "vl": {wasm.OpVector, 0x1d, 0},
	"fv": {wasm.OpVector, 0x13}, "vf": {wasm.OpVector, 0x1f, 0}, "dv": {wasm.OpVector, 0x14}, "vd": {wasm.OpVector, 0x21, 0},
	"id": {0xb7}, "di": {0xaa}, "lf": {0xb4}, "fl": {0xae}, "fd": {0xbb}, "df": {0xb6},
}

// Locals of the function whose cost is measured: the number of iterations, two
// parameters of each numeric type, two vectors, and a result of each type.
const priceTurns = 0

var (
	priceFirst  = map[byte]uint64{'i': 1, 'l': 3, 'f': 5, 'd': 7, 'v': 9}
	priceResult = map[byte]uint64{'i': 11, 'l': 12, 'f': 13, 'd': 14, 'v': 15}
)

const priceRow = 64 // instructions per iteration

// priceModule returns a module with the function "price", which runs the code
// once per iteration.
func priceModule(helpers [][]byte, types [][]byte, parts map[byte][]byte, row []byte, doubles bool) []byte {
	params := []byte{typeI32, typeI32, typeI32, wasm.TypeI64, wasm.TypeI64, wasm.TypeF32, wasm.TypeF32, wasm.TypeF64, wasm.TypeF64}
	locals := vec([]byte{2, wasm.TypeV128}, []byte{1, typeI32}, []byte{1, wasm.TypeI64}, []byte{1, wasm.TypeF32}, []byte{1, wasm.TypeF64}, []byte{1, wasm.TypeV128})
	splat, scalar := byte(0x13), priceFirst['f']
	if doubles {
		splat, scalar = 0x14, priceFirst['d']
	}
	var begin []byte
	for i := range uint64(2) {
		begin = cat(begin, get(scalar+i), op(wasm.OpVector, []byte{splat}), op(opLocalSet, uleb(priceFirst['v']+i)))
	}
	for _, kind := range []byte("ilfdv") {
		begin = cat(begin, get(priceFirst[kind]), op(opLocalSet, uleb(priceResult[kind])))
	}
	code := cat(begin, op(opLoop, []byte{blockVoid}), row,
		get(priceTurns), i32c(1), op(opI32Sub), op(opLocalTee, uleb(priceTurns)), op(opBrIf, uleb(0)), []byte{opEnd},
		get(11), get(12), op(opI32WrapI64), op(opI32Add), get(13), op(0xbc), op(opI32Add), get(14), op(0xbd), op(opI32WrapI64), op(opI32Add),
		get(15), op(wasm.OpVector, []byte{0x1b, 0}), op(opI32Add))
	functions, bodies := [][]byte{uleb(0)}, [][]byte{asmBody(locals, code)}
	for i, helper := range helpers {
		functions = append(functions, uleb(uint64(i+1)))
		bodies = append(bodies, helper)
	}
	sections := [][]byte{asmSection(sectionType, vec(append([][]byte{asmType(signature{Params: string(params), Results: string([]byte{typeI32})})}, types...)...)),
		asmSection(sectionFunction, vec(functions...))}
	if part, ok := parts[sectionTable]; ok {
		sections = append(sections, asmSection(sectionTable, vec(part)))
	}
	sections = append(sections, asmSection(sectionMemory, vec(memoryBounds(1, 1))))
	if part, ok := parts[sectionGlobal]; ok {
		sections = append(sections, asmSection(sectionGlobal, vec(part)))
	}
	sections = append(sections, asmSection(sectionExport, vec(
		cat(text(abi.ExportMemory), []byte{kindMemory, 0}), cat(text("price"), []byte{kindFunction, 0}))))
	if part, ok := parts[sectionElement]; ok {
		sections = append(sections, asmSection(sectionElement, vec(part)))
	}
	return asmModule(append(sections, asmSection(sectionCode, vec(bodies...)))...)
}

// price returns the time in nanoseconds and the fuel of one instruction of the
// row.
func price(b *testing.B, e *Engine, module []byte, divisor uint64) (ns, fuel float64) {
	b.Helper()
	k := openKernel(b, e, module, true)
	const turns = 2000
	args := []uint64{turns, 0x7fff1234, divisor, 0x7fff_1234_5678_9abc, divisor,
		uint64(math.Float32bits(1.5)), uint64(math.Float32bits(1.0001)), math.Float64bits(1.5), math.Float64bits(1.0001)}
	best := time.Duration(math.MaxInt64)
	var used int64
	for range 25 {
		k.meter.open(math.MaxInt64)
		stack := slices.Clone(args)
		from := time.Now()
		if err := k.guest.ExportedFunction("price").CallWithStack(k.ctx, stack); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(from))
		k.meter.close()
		used = k.meter.used
		k.instance.endTurn()
	}
	return float64(best.Nanoseconds()) / (turns * priceRow), float64(used) / (turns * priceRow)
}

// chain returns a row of the instruction, in which each instruction waits for
// the result of the previous one.
func chain(p priced) []byte {
	to := priceResult[p.params[0]]
	one := get(to)
	for i := 1; i < len(p.params); i++ {
		one = cat(one, get(priceFirst[p.params[i]]+1))
	}
	one = cat(one, p.code)
	if p.result != p.params[0] {
		one = cat(one, back[string([]byte{p.result, p.params[0]})])
	}
	return times(priceRow, cat(one, op(opLocalSet, uleb(to))))
}

// cost is the time and the fuel of one instruction.
type cost struct {
	name     string
	ns, fuel float64
}

// prices measures the instructions that compute. Each of them waits for the
// result of the previous one. Converting a result back to the type of the
// operand takes time too, which is subtracted: half of the cost of converting
// there and back.
func prices(b *testing.B, e *Engine) (all []cost) {
	b.Helper()
	ways := map[string]cost{}
	measure := func(p priced) cost {
		divides := p.name >= "6d" && p.name <= "70" || p.name >= "7f" && p.name <= "82"
		doubles := p.name >= "fd ec" && p.name <= "fd f7" || p.name >= "fd 47" && p.name <= "fd 4c"
		divisor := uint64(3)
		if divides {
			divisor = 1 // large quotients take the longest
		}
		ns, fuel := price(b, e, priceModule(nil, nil, nil, chain(p), doubles), divisor)
		return cost{p.name + " " + p.params + string(p.result), ns, fuel - 1} // without the local.set
	}
	for way, code := range back {
		from, to := way[0], way[1]
		there := priced{way, code, string(from), to}
		both := measure(there)
		ways[way] = cost{way, both.ns / 2, both.fuel / 2}
	}
	for _, p := range numeric() {
		c := measure(p)
		if p.result != p.params[0] {
			way := ways[string([]byte{p.result, p.params[0]})]
			c.ns, c.fuel = c.ns-way.ns, c.fuel-way.fuel
		}
		all = append(all, c)
	}
	return all
}

// carriers measures the instructions that pass values: calls with many
// parameters or results, and branches.
func carriers(b *testing.B, e *Engine) (all []cost) {
	b.Helper()
	longs := func(n int) string { return string(times(n, []byte{wasm.TypeI64})) }
	set := op(opLocalSet, uleb(12))
	parts := map[byte][]byte{sectionTable: tableOf(memoryBounds(4, 4)), sectionElement: cat([]byte{0}, i32c(0), []byte{opEnd}, vec(uleb(1)))}
	measure := func(name string, s signature, body, row []byte) {
		ns, fuel := price(b, e, priceModule([][]byte{asmBody(nil, body)}, [][]byte{asmType(s)}, parts, times(priceRow, row), false), 3)
		all = append(all, cost{name, ns, fuel})
	}
	for _, n := range []int{1, 4, 8, 16, 32, 64, 128} {
		push := times(n, get(12))
		takes := signature{Params: longs(n), Results: longs(1)}
		measure(fmt.Sprintf("call of %d", n), takes, i64c(1), cat(push, call(1), set))
		measure(fmt.Sprintf("call_indirect of %d", n), takes, i64c(1), cat(push, i32c(0), op(opCallIndirect, uleb(1), []byte{0}), set))
		if n > 32 {
			continue
		}
		gives, body := signature{Results: longs(n)}, times(n, i64c(5))
		rest := cat(times(n-1, op(opDrop)), set)
		measure(fmt.Sprintf("call for %d", n), gives, body, cat(call(1), rest))
		measure(fmt.Sprintf("br_if with %d", n), gives, body, cat(op(opBlock, sleb(1)), push, get(1), op(opBrIf, uleb(0)),
			times(n, op(opDrop)), times(n, get(3)), []byte{opEnd}, rest))
	}
	return all
}

// BenchmarkPrices measures the time per unit of fuel for each instruction, as
// a multiple of the time for an i64.add. No multiple should exceed 4.
// Instructions that access memory are left out because they may wait for it.
func BenchmarkPrices(b *testing.B) {
	e := newEngine(b, Options{})
	for b.Loop() {
		all := prices(b, e)
		at := slices.IndexFunc(all, func(c cost) bool { return c.name == "7c lll" })
		unit := all[at].ns / all[at].fuel
		all = append(all, carriers(b, e)...)
		slices.SortFunc(all, func(a, b cost) int { return cmp.Compare(b.ns/b.fuel, a.ns/a.fuel) })
		for _, c := range all[:12] {
			b.Logf("%-20s %6.2f ns for %3.0f units: %4.1f", c.name, c.ns, c.fuel, c.ns/c.fuel/unit)
		}
		b.ReportMetric(all[0].ns/all[0].fuel/unit, "worst")
	}
}
