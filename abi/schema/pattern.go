package schema

import (
	"bytes"
	"regexp/syntax"
	"sync"
	"unicode/utf8"
)

// pattern is a compiled regular expression.
//
// The standard library's matcher cannot be interrupted and does not report how
// much work it does, so each match would have to be charged its worst case:
// instructions times bytes, which is far too much for most patterns. This
// matcher follows all alternatives at once, as RE2 does, and counts every
// instruction that it visits. It only reports whether the text matches, so it
// needs neither priorities nor captures.
type pattern struct {
	text     string
	code     *syntax.Prog
	prefix   []byte // prefix of every match; empty if there is no common prefix
	anchored bool   // a match can begin only at the start of the text
	assists  bool   // there are assertions such as ^, $ and \b
}

func compilePattern(text string) (p *pattern, tooLong bool, err error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, false, err
	}
	code, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(code.Inst) > MaxPatternCode {
		return nil, true, err
	}
	p = &pattern{text: text, code: code, anchored: code.StartCond()&syntax.EmptyBeginText != 0}
	if prefix, _ := code.Prefix(); !p.anchored {
		p.prefix = []byte(prefix)
	}
	for i := range code.Inst {
		p.assists = p.assists || code.Inst[i].Op == syntax.InstEmptyWidth
	}
	return p, false, nil
}

// machine is the memory of one match.
type machine struct {
	marks [MaxPatternCode]uint32 // round in which each instruction was last visited
	round uint32
	reach [MaxPatternCode]uint16 // instructions that consume the next character
	next  [MaxPatternCode]uint16 // their successors
	stack [MaxPatternCode]uint16
}

var machines = sync.Pool{New: func() any { return new(machine) }}

const (
	matchSteps    = 4 // minimum cost of a match
	visitsPerStep = 2 // visited instructions per step
	visitsAtOnce  = 256
)

// matches reports whether a part of the text matches the pattern.
func (w *walker) matches(p *pattern, text []byte) bool {
	if !w.spend(matchSteps) {
		return false
	}
	m := machines.Get().(*machine)
	found, visits := w.follow(p, m, text)
	machines.Put(m)
	return w.spend(visits/visitsPerStep) && found
}

// follow runs the pattern over the text, one character at a time. It returns
// how many visited instructions have not been paid for yet.
func (w *walker) follow(p *pattern, m *machine, text []byte) (found bool, visits int) {
	before, alive := rune(-1), 0
	for at := 0; ; {
		if alive == 0 && at > 0 && p.anchored {
			return false, visits
		}
		if alive == 0 && len(p.prefix) > 0 {
			skipped := bytes.Index(text[at:], p.prefix)
			if skipped < 0 {
				return false, visits + (len(text)-at)/8
			}
			if visits += skipped / 8; skipped > 0 {
				at += skipped
				before, _ = utf8.DecodeLastRune(text[:at])
			}
		}
		here, size := rune(-1), 0
		if at < len(text) {
			if here, size = rune(text[at]), 1; here >= utf8.RuneSelf {
				here, size = utf8.DecodeRune(text[at:])
			}
		}
		reached, looked, matched := p.expand(m, alive, before, here, at == 0 || !p.anchored)
		if visits += 1 + looked; visits >= visitsAtOnce {
			if !w.spend(visits / visitsPerStep) {
				return false, 0
			}
			visits = 0
		}
		if matched || size == 0 {
			return matched, visits
		}
		alive = 0
		for _, pc := range m.reach[:reached] {
			if in := &p.code.Inst[pc]; takes(in, here) {
				m.next[alive] = uint16(in.Out)
				alive++
			}
		}
		before, at = here, at+size
	}
}

// expand finds the instructions that may consume the next character: the
// instructions reachable from m.next, and from the start if a match may begin
// here. It returns how many there are, how many instructions it has visited,
// and whether the pattern has matched already.
func (p *pattern) expand(m *machine, alive int, before, here rune, begins bool) (reached, looked int, matched bool) {
	if m.round++; m.round == 0 {
		clear(m.marks[:])
		m.round = 1
	}
	var holds syntax.EmptyOp
	if p.assists {
		holds = syntax.EmptyOpContext(before, here)
	}
	for i := 0; i <= alive; i++ {
		from := uint16(p.code.Start)
		if i < alive {
			from = m.next[i]
		} else if !begins {
			break
		}
		if m.marks[from] == m.round {
			continue
		}
		m.marks[from] = m.round
		m.stack[0] = from
		for top := 1; top > 0; {
			top--
			pc := m.stack[top]
			looked++
			in := &p.code.Inst[pc]
			switch in.Op {
			case syntax.InstMatch:
				return reached, looked, true
			case syntax.InstFail:
				continue
			case syntax.InstAlt, syntax.InstAltMatch:
				if m.marks[in.Arg] != m.round {
					m.marks[in.Arg] = m.round
					m.stack[top] = uint16(in.Arg)
					top++
				}
			case syntax.InstEmptyWidth:
				if syntax.EmptyOp(in.Arg)&^holds != 0 {
					continue
				}
			case syntax.InstCapture, syntax.InstNop:
			default:
				m.reach[reached] = pc
				reached++
				continue
			}
			if m.marks[in.Out] != m.round {
				m.marks[in.Out] = m.round
				m.stack[top] = uint16(in.Out)
				top++
			}
		}
	}
	return reached, looked, false
}

// takes reports whether an instruction consumes a character.
func takes(in *syntax.Inst, c rune) bool {
	switch in.Op {
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return c != '\n'
	case syntax.InstRune1:
		return c == in.Rune[0]
	}
	return in.MatchRune(c)
}
