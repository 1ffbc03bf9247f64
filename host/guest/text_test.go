package guest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

// bomb is a hostile module of testdata/bombs.txt, written as text.
type bomb struct {
	name   string
	guest  *testGuest
	limits abi.Limits
	call   string // export to call; "" for none
	kind   string // kind of the end: refused, fault or lives
	where  string // place of the rejection, or kind of the fault
	text   string // part of the reason
}

// readBombs reads the file. A bomb begins with its name in brackets. Then
// follow lines with a word and its arguments:
//
//	import MODULE NAME       function 0, 1, ...
//	locals EXPORT N          i64 locals, after the parameters
//	table MIN MAX            of functions
//	memory MIN MAX           in pages
//	body EXPORT CODE         without its end; ( N CODE ) is CODE N times
//	helper CODE              a function () -> () after the contract's
//	helpers N CODE           N of them
//	limit NAME VALUE
//	call EXPORT
//	end refused WHERE: TEXT | fault KIND: TEXT | lives
func readBombs(t testing.TB) []*bomb {
	t.Helper()
	file, err := os.ReadFile("testdata/bombs.txt")
	if err != nil {
		t.Fatal(err)
	}
	var bombs []*bomb
	for number, line := range strings.Split(string(file), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "[") {
			bombs = append(bombs, &bomb{name: strings.Trim(line, "[]"), limits: abi.DefaultLimits(),
				guest: &testGuest{bodies: map[string][]byte{}, locals: map[string][]byte{}}})
			continue
		}
		if err := bombs[len(bombs)-1].line(line); err != nil {
			t.Fatalf("testdata/bombs.txt:%d: %v", number+1, err)
		}
	}
	return bombs
}

func (b *bomb) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	fields := strings.Fields(rest)
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(fields[i], 0, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	switch word {
	case "import":
		b.guest.importing(fields[0], fields[1])
	case "locals":
		b.guest.locals[fields[0]] = vec(cat(uleb(number(1)), []byte{typeI64}))
	case "table":
		b.guest.tables = append(b.guest.tables, tableOf(memoryBounds(number(0), number(1))))
	case "memory":
		b.guest.memory = memoryBounds(number(0), number(1))
	case "body", "helper", "helpers":
		text, times := rest, 1
		if word != "helper" {
			text = strings.TrimPrefix(rest, fields[0])
		}
		if word == "helpers" {
			times = int(number(0))
		}
		code, left, err := assembleText(strings.Fields(text))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%q is left over", left[0])
		}
		if err != nil {
			return err
		}
		if word == "body" {
			b.guest.bodies[fields[0]] = code
			return nil
		}
		for range times {
			b.guest.helpers = append(b.guest.helpers, helper{code: code})
		}
	case "limit":
		limit := map[string]*int{"command-fuel": &b.limits.CommandFuel, "event-fuel": &b.limits.EventFuel, "body-bytes": &b.limits.FunctionBodyBytes}[fields[0]]
		*limit = int(number(1))
	case "call":
		b.call = rest
	case "end":
		b.kind, rest, _ = strings.Cut(rest, " ")
		b.where, b.text, _ = strings.Cut(rest, ": ")
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return nil
}

// mnemonics are the instructions that bombs consist of: one or more bytes, and
// the kinds of operands: u an index, s a constant, b the type of a block.
var mnemonics = map[string]struct {
	code     []byte
	operands string
}{
	"unreachable": {[]byte{opUnreachable}, ""}, "nop": {[]byte{opNop}, ""}, "block": {[]byte{opBlock}, "b"}, "loop": {[]byte{opLoop}, "b"},
	"if": {[]byte{opIf}, "b"}, "else": {[]byte{opElse}, ""}, "end": {[]byte{opEnd}, ""}, "br": {[]byte{opBr}, "u"}, "br_if": {[]byte{opBrIf}, "u"},
	"return": {[]byte{opReturn}, ""}, "call": {[]byte{opCall}, "u"}, "call_indirect": {[]byte{opCallIndirect}, "uu"}, "drop": {[]byte{opDrop}, ""},
	"local.get": {[]byte{opLocalGet}, "u"}, "local.set": {[]byte{opLocalSet}, "u"}, "local.tee": {[]byte{opLocalTee}, "u"},
	"i32.const": {[]byte{opI32Const}, "s"}, "i64.const": {[]byte{opI64Const}, "s"}, "i32.add": {[]byte{opI32Add}, ""}, "i32.eqz": {[]byte{opI32Eqz}, ""},
	"i64.add": {[]byte{opI64Add}, ""}, "i64.sub": {[]byte{opI64Sub}, ""}, "i64.mul": {[]byte{opI64Mul}, ""}, "i64.eqz": {[]byte{0x50}, ""},
	"i32.wrap_i64": {[]byte{opI32WrapI64}, ""}, "i64.load": {[]byte{opI64Load, 3, 0}, ""}, "i64.store": {[]byte{opI64Store, 3, 0}, ""},
	"memory.grow": {[]byte{opMemoryGrow, 0}, ""}, "memory.fill": {[]byte{opMisc, miscMemoryFill, 0}, ""}, "memory.copy": {[]byte{opMisc, miscMemoryCopy, 0, 0}, ""},
	"table.grow": {[]byte{opMisc, miscTableGrow}, "u"}, "table.fill": {[]byte{opMisc, miscTableFill}, "u"}, "ref.null": {[]byte{opRefNull, typeFuncref}, ""},
	"f64.const0": {[]byte{opF64Const, 0, 0, 0, 0, 0, 0, 0, 0}, ""}, "f64.sqrt": {[]byte{opF64Sqrt}, ""},
}

// assembleText assembles words up to a closing bracket and returns the
// remaining words.
func assembleText(words []string) (code []byte, left []string, err error) {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == ")" {
			return code, words, nil
		}
		if word == "(" {
			times, err := strconv.Atoi(words[0])
			if err != nil {
				return nil, nil, err
			}
			var inner []byte
			if inner, words, err = assembleText(words[1:]); err != nil {
				return nil, nil, err
			}
			for range times {
				code = append(code, inner...)
			}
			continue
		}
		m, known := mnemonics[word]
		if !known {
			return nil, nil, fmt.Errorf("unknown instruction %q", word)
		}
		code = append(code, m.code...)
		for _, kind := range m.operands {
			operand := words[0]
			words = words[1:]
			if kind == 'b' {
				code = append(code, map[string]byte{"void": blockVoid, "i32": typeI32, "i64": typeI64}[operand])
				continue
			}
			value, err := strconv.ParseInt(operand, 0, 64)
			if err != nil {
				return nil, nil, err
			}
			if kind == 'u' {
				code = append(code, uleb(uint64(value))...)
			} else {
				code = append(code, sleb(value)...)
			}
		}
	}
	return code, nil, nil
}
